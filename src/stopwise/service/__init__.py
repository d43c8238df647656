"""The service: decisions over HTTP, remembered in a log of events.

The way of a request::

    http ─ a command → writer ─ executes it on → state (cascades: policy and ledger)
                          │  └─ what happened: an event
                          └─ commits a block of events to → store (SQLite, PostgreSQL)
                             and only then answers

State is a fold over the log, so that reading the log again gives the same state, bit for bit.
"""
