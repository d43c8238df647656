"""The formats of a log.

A new one is a file here, and a line in `READERS` (logs/log.py) and `WRITERS` (logs/writer.py).
"""
