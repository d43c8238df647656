"""The client of the service: `Client`, and `AsyncClient` for async code.

Requests are written once, as generators without input or output; the two clients do their steps::

    Client, AsyncClient → rounds → requests → exchanges
"""
