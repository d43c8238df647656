"""Logs of rounds: formats, replay and diagnosis."""
