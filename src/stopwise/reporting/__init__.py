"""What every report of Stopwise shares: its looks, its words, its figures, its files."""
