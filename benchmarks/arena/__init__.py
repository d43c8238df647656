"""Policies and simple rules on seven real cascades: ``python -m benchmarks.arena``.

``data`` reads the cascades, ``players`` lists the competitors, ``contest`` runs every competitor on
every setting, ``scores`` computes relative losses with intervals, and ``tables`` and ``picture``
show them. ``convert`` creates the folder of data from the public sources.
"""
