"""Comparators by name, for experiment specs."""

from stopwise.research.comparators.base import Comparator
from stopwise.research.comparators.clairvoyant import Clairvoyant
from stopwise.research.comparators.oracle import Oracle
from stopwise.research.comparators.supervised import Supervised

COMPARATORS: dict[str, type[Comparator]] = {
    comparator.name: comparator for comparator in (Supervised, Oracle, Clairvoyant)
}
