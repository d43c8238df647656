"""Where the log of events is kept: SQLite for one machine, PostgreSQL for several."""
