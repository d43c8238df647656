"""The dashboard: what the service knows, as pages for people.

::

    Service ─ views ─→ plain values ─ html, drawing, words ─→ a page
                                      pages, sessions: who may see it, and who may act

Pages are made on the server and read only: nothing here solves, fits or changes a state.
"""
