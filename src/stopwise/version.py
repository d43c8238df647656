"""The version of Stopwise."""

__version__ = "0.1.0"
