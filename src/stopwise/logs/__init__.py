"""Logs of rounds: the format, replay and diagnosis."""
