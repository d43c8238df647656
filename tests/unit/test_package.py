"""The package itself: cheap to import, every public name in its place."""

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


def test_errors_and_warnings_are_in_their_module_only() -> None:
    public = {name for name in vars(sw.errors) if name[0] != "_"}
    assert all(issubclass(getattr(sw.errors, name), Exception) for name in public)
    assert not any(hasattr(sw, name) for name in public)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'USSPDD'"):
        sw.USSPDD  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_that_of_the_project() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert sw.__version__ == tomllib.loads(text)["project"]["version"]
