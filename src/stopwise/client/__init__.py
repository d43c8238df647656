"""The client of the service: `Client`, and `AsyncClient` for async code.

Requests are generators that do no I/O. Both clients share them and perform their steps::

    Client, AsyncClient → rounds → requests → retries
"""
