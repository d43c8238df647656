"""Replay of policies on the rounds of a log."""
