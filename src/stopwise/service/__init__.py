"""The service: decisions over HTTP, backed by an event log (`docs/architecture.md`).

The state is a fold over the log, so replaying the log gives the same state, bit for bit.
"""
