"""The commands of ``stopwise log``: read, check, export and compact an event log."""
