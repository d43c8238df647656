"""Lazy imports: public names whose module is loaded on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attach(
    package: str, modules: Mapping[str, str], *loaded: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` for lazy imports.

    ``modules`` maps each lazy name to its module. ``loaded`` contains the public names that the
    package defines itself.
    """

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted([*modules, *loaded])

    return get, names
