"""The commands of ``stopwise store``: read, check, export and compact an event log."""
