"""The package itself: cheap to import, every public name in its place."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stopwise as sw

ROOT = Path(__file__).parents[2]
INIT = Path(str(sw.__file__))

FRESH = """
import json, sys
before = set(sys.modules)
import stopwise
imported = sorted(set(sys.modules) - before)
resolved = {name: repr(getattr(stopwise, name)) for name in dir(stopwise)}
json.dump([imported, resolved], sys.stdout)
"""


@pytest.fixture(scope="module")
def fresh() -> tuple[list[str], dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(INIT.parents[1])!r}){FRESH}"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported, resolved = json.loads(done.stdout)
    return imported, resolved


@pytest.mark.parametrize("heavy", ["numpy", "scipy", "sklearn", "matplotlib", "msgspec"])
def test_importing_the_package_imports_nothing_heavy(
    heavy: str, fresh: tuple[list[str], dict[str, str]]
) -> None:
    imported, _ = fresh
    assert "stopwise" in imported
    assert heavy not in {name.partition(".")[0] for name in imported}


def test_every_public_name_resolves_in_a_fresh_process(
    fresh: tuple[list[str], dict[str, str]],
) -> None:
    _, resolved = fresh
    assert set(resolved) == set(dir(sw))
    assert {"Cascade", "USSPD", "load", "simulate", "__version__"} <= set(resolved)


def _typed_names() -> dict[str, str]:
    """Read the names of the TYPE_CHECKING block, each with the module it comes from."""
    tree = ast.parse(INIT.read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )
    names: dict[str, str] = {}
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        for alias in line.names:
            assert alias.name == alias.asname, "re-exports are written `X as X`"
            names[alias.name] = str(line.module)
    return names


def test_type_checkers_see_the_names_that_are_loaded_lazily() -> None:
    lazy = {name: f"stopwise.{module}" for name, module in sw._HOME.items()}
    assert _typed_names() == lazy
    assert set(lazy) == set(dir(sw)) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'USSPDD'"):
        sw.USSPDD  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sw.__version__ == project["version"]
