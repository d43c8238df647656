"""Policies decide when to stop; all follow one protocol and are registered by name."""
