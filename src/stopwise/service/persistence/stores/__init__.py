"""Stores of the event log: SQLite for one machine, PostgreSQL for several."""
