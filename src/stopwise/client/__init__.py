"""The client of the service: `Client`, and `AsyncClient` for async code.

What both do is written once, without any input or output, as *exchanges*: generators that yield
what is to be done next (send this request, wait so long, ask this stage) and are told how it went::

    core ─ an exchange → exchange (retries, decoding) ─ steps → Client, AsyncClient ─ httpx
"""
