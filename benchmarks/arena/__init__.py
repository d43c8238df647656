"""Policies on seven real cascades, beside plain rules: ``python -m benchmarks.arena``.

``data`` reads the cascades and makes settings of them, ``players`` lists the competitors,
``contest`` lets everybody play every setting, ``scores`` turns losses into multiples with
intervals, ``tables`` and ``picture`` show them. ``convert`` makes the folder of data from the
public sources.
"""
