"""The package itself: cheap to import, every public name in its place."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stopwise as sw

INIT = Path(str(sw.__file__))
FRESH = f"""
import json, sys
sys.path.insert(0, {str(INIT.parents[1])!r})
before = set(sys.modules)
import stopwise
imported = sorted(set(sys.modules) - before)
json.dump([imported, {{name: repr(getattr(stopwise, name)) for name in dir(stopwise)}}], sys.stdout)
"""


def test_importing_the_package_imports_nothing_heavy_and_every_public_name_resolves() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    imported, resolved = json.loads(done.stdout)
    assert "stopwise" in imported
    heavy = {"numpy", "scipy", "sklearn", "matplotlib", "msgspec"}
    assert not heavy & {name.partition(".")[0] for name in imported}
    assert set(resolved) == set(dir(sw))
    assert {"Cascade", "USSPD", "load", "simulate", "__version__"} <= set(resolved)


def test_type_checkers_see_the_names_that_are_loaded_lazily() -> None:
    imports = [n for n in ast.walk(ast.parse(INIT.read_text())) if isinstance(n, ast.ImportFrom)]
    typed = {alias.asname: node.module for node in imports for alias in node.names}
    lazy = {name: f"stopwise.{module}" for name, module in sw._HOME.items()}
    assert {name: module for name, module in typed.items() if name in lazy} == lazy
    assert set(typed) - set(lazy) == {"__version__", None}  # None: imported without an alias
    assert set(lazy) == set(dir(sw)) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'USSPDD'"):
        sw.USSPDD  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_that_of_the_project() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert sw.__version__ == tomllib.loads(text)["project"]["version"]
