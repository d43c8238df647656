"""The service: how deep to go, over HTTP, with a log of all events (`docs/architecture.md`).

The state is a fold over the log: to read the log again gives the same state, bit for bit.
"""
