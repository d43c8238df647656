"""The formats of a log. A new one is a file here, and a line in `READERS` and `WRITERS`."""
