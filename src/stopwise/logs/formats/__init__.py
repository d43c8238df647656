"""File formats of logs.

To add a format, add a module here and register it in `READERS` (logs/log.py) and `WRITERS`
(logs/writer.py).
"""
