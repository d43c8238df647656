"""Tests of imports and public names."""

import ast
import compileall
import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stopwise as sw
from stopwise import research
from stopwise.engine import native

PACKAGE = Path(str(sw.__file__)).parent
IMPORT = """
import json, sys
import stopwise
json.dump(sorted(sys.modules), sys.stdout)
"""
RESOLVE = """
import json, sys
import stopwise, stopwise.research
for package in stopwise, stopwise.research:
    for name in dir(package):
        getattr(package, name)
json.dump([stopwise.__file__, dir(stopwise), dir(stopwise.research)], sys.stdout)
"""
USE = """
import json, sys
from importlib import import_module
from pkgutil import walk_packages
import stopwise as sw
for part in "service", "proxy", "client":
    package = import_module(f"stopwise.{part}")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
policy = sw.load(sys.argv[1])
policy.observe([0.5], [0, 1])
json.dump(sorted(sys.modules), sys.stdout)
"""


def output(*arguments: str) -> Any:
    """Return the JSON that a new interpreter prints."""
    process = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout)


def test_importing_the_package_imports_no_large_dependencies() -> None:
    imported = {name.partition(".")[0] for name in output("-c", IMPORT)}
    assert "stopwise" in imported
    assert not imported & {"numpy", "scipy", "sklearn", "matplotlib", "msgspec"}


def test_policies_and_the_service_do_not_import_research(tmp_path: Path) -> None:
    sw.USSPD(sw.Cascade([0.1, 0.2]), context_dim=1).save(tmp_path / "policy")
    imported = output("-c", USE, str(tmp_path / "policy"))
    assert {"stopwise.policies.uss_pd", "stopwise.service.serve"} <= set(imported)
    assert [name for name in imported if name.startswith("stopwise.research")] == []


@pytest.mark.parametrize("package", [sw, research])
def test_lazy_names_match_those_for_type_checkers(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(len(node.names) == 1 for node in imports)
    declared = {node.names[0].asname: node.module for node in imports}
    assert declared == package._MODULES
    assert set(dir(package)) - {"errors", "__version__"} == set(declared)


def test_public_names_resolve_in_a_package_without_sources(tmp_path: Path) -> None:
    copy = tmp_path / "stopwise"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.cpp", "*.h"))
    shutil.copy(str(native.__file__), copy / "engine")
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    libraries = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    path = [str(tmp_path), *libraries]
    # -S skips site, so that the hook of the editable installation cannot find the sources.
    script = f"import sys; sys.path += {path}\n{RESOLVE}"
    file, names, research_names = output("-S", "-c", script)
    assert file == str(copy / "__init__.pyc")
    assert names == dir(sw)
    assert research_names == dir(research)
    assert {"Cascade", "USSPD", "load", "simulate", "errors", "__version__"} <= set(names)


def test_errors_and_warnings_are_only_in_the_errors_module() -> None:
    public = {name for name in vars(sw.errors) if name[0] != "_"}
    assert all(issubclass(getattr(sw.errors, name), Exception) for name in public)
    assert not any(hasattr(sw, name) for name in public)


@pytest.mark.parametrize("package", [sw, research])
def test_an_unknown_name_raises_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'USSPDD'"):
        package.USSPDD  # noqa: B018


def test_the_version_matches_pyproject() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert sw.__version__ == tomllib.loads(text)["project"]["version"]
