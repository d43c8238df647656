"""The other libraries of the speed comparisons, one module each."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.base import Peer

__all__ = ["MODULES", "Peer", "load"]

MODULES = {
    "numpy_linucb": "numpy LinUCB, stacked",
    "vowpal": "Vowpal Wabbit --cb_explore",
    "river_logistic": "river LogisticRegression",
    "river_linucb": "river LinUCBDisjoint",
    "mabwiser_linucb": "MABWiser LinUCB",
    "sklearn_refit": "scikit-learn refits",
}
"""Module of a peer → its name if the library is not installed."""


def load(module: str) -> type[Peer] | None:
    """Return the peer of a module, or None if its library is not installed."""
    try:
        peer: type[Peer] = import_module(f"benchmarks.peers.{module}").PEER
    except ImportError:
        return None
    return peer
