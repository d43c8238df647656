"""Which version of Stopwise this is."""

__version__ = "0.1.0"
