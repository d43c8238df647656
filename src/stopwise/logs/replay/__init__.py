"""Replay: what policies would have done with the rounds of a log."""
