"""The commands of ``stopwise log``: read, check, export, copy and shorten an event log."""
