"""Statements of the documentation that can be compared with the code: names, files, options."""

import ast
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.main import get_command

import stopwise as sw
from stopwise import research
from stopwise.cli.main import app
from stopwise.engine import native
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.proxy import config

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/stopwise"
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
CONTRIBUTING = TEXTS["CONTRIBUTING.md"]


def mentions(pattern: str) -> list[tuple[str, str]]:
    """Return each match of a pattern with the page that it is on."""
    return [
        (page, match)
        for page, text in TEXTS.items()
        for match in re.findall(pattern, text, re.MULTILINE)
    ]


def table_after(page: str, marker: str) -> list[list[str]]:
    """Return the cells of the first table after a text, without its two header lines."""
    _, _, after = TEXTS[page].partition(marker)
    assert after, f"{page} has no {marker!r}"
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    # A bar within a cell is written as \|.
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([\w./]+)`", cell)


def test_names_of_the_package_exist() -> None:
    found = mentions(r"\bsw\.([A-Za-z_]\w*)")
    assert len(found) > 100
    assert [(page, name) for page, name in found if not hasattr(sw, name)] == []
    found = mentions(r"\bresearch\.([A-Za-z_]\w*)")
    assert len(found) > 20
    assert [(page, name) for page, name in found if not hasattr(research, name)] == []


def test_files_exist() -> None:
    """In backticks, a path below a folder of the repository or of the package."""
    folders = [path for base in (ROOT, PACKAGE) for path in base.iterdir() if path.is_dir()]
    first = {path.name for path in folders if not path.name.startswith(".")} - {"build", "dist"}
    found = [
        (page, path)
        for page, path in mentions(r"`([\w-]+/[\w./-]+)`")
        if path.partition("/")[0] in first
    ]
    assert len(found) > 100
    created_by_a_reader = {
        "policies/greedy.py",
        "benchmarks/results/arena",
        "proxy-report/assistant-rounds.jsonl",
    }
    missing = [
        (page, path)
        for page, path in found
        if path not in created_by_a_reader
        and not any((base / path).exists() for base in (ROOT, PACKAGE))
    ]
    assert missing == []


def test_commands_and_their_options_exist() -> None:
    options: dict[str, set[str]] = {}

    def collect(command: Any, name: str) -> None:
        options[name] = {option for one in command.params for option in one.opts}
        for inner_name, inner in getattr(command, "commands", {}).items():
            collect(inner, f"{name} {inner_name}")

    collect(get_command(app), "stopwise")
    lines = mentions(r"^(?:\$ )?(stopwise (?:[^#\n\\]|\\\n)+)") + mentions(r"`(stopwise [^`\n]+)`")
    assert len(lines) > 50
    wrong: list[tuple[str, str]] = []
    for page, line in lines:
        name = "stopwise"
        for word in line.split()[1:]:
            if f"{name} {word}" not in options:
                break
            name = f"{name} {word}"
        given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
        allowed = options[name] | ({"--example", "--help"})
        if name == "stopwise" or not given <= allowed:
            wrong.append((page, line))
    assert wrong == []


def test_make_targets_modules_and_scripts_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    found = mentions(r"(?:`|^)make ([a-z-]+)(?=[` \n])")
    assert len(found) > 10
    assert [(page, target) for page, target in found if target not in targets] == []
    modules = mentions(r"python -m (benchmarks[\w.]*|stopwise[\w.]*|docs[\w.]*)")
    assert len(modules) > 10
    assert [one for one in modules if importlib.util.find_spec(one[1].rstrip(".")) is None] == []
    scripts = mentions(r"python (examples/[\w.]+\.py)")
    assert [one for one in scripts if not (ROOT / one[1]).is_file()] == []


def test_contributing_lists_every_folder_of_tests_and_every_part_of_the_engine() -> None:
    listed = {
        name for row in table_after("CONTRIBUTING.md", "## Tests") for name in names_in(row[0])
    }
    folders = [path for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))]
    assert listed == {f"tests/{path.name}" for path in folders}
    parts = {
        Path(name).stem
        for row in table_after("CONTRIBUTING.md", "## The engine")
        for name in names_in(row[0])
    }
    sources = [*(PACKAGE / "engine").glob("*.h"), *(PACKAGE / "engine").glob("*.cpp")]
    assert parts == {"bindings", *(path.stem for path in sources)}


def test_the_policy_of_contributing_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule of the engine in place of the one that it adds, because that is C++."""
    _, _, after = CONTRIBUTING.partition("In `policies/greedy.py`, the rule as a value")
    code = after.split("```python\n")[1].split("```")[0]
    monkeypatch.setattr(native, "Greedy", lambda: native.Laplace(0.0), raising=False)
    names: dict[str, Any] = {"__name__": "stopwise.policies.greedy"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    greedy = names["Greedy"]
    own = {name for name in vars(greedy) if not name.startswith("__")}
    assert own <= {"name", *dir(PairwisePolicy)}, "attributes that no policy has"
    policy = greedy(sw.Cascade([0.1, 0.2]), context_dim=1, ridge=0.01)
    assert policy.parameters() == {"forced_rounds": 50, "ridge": 0.01}
    policy.run(np.zeros((60, 1)), [[0, 1]] * 60)
    assert policy.rounds == 60


def test_numbers_of_the_arena_are_the_same_on_the_page_that_compares_policies() -> None:
    results = {row[0]: row[1:] for row in table_after("docs/arena.md", "## Results")}
    means = {name: row[0].partition(" ")[0] for name, row in results.items()}
    worst = {name: row[1].partition(" ")[0] for name, row in results.items()}
    rows = {row[0].replace("`", ""): row[1:] for row in table_after("docs/choosing.md", "[arena]")}
    for labels in (30, 100, 300):
        name = f"uss-laplace, {labels} labels"
        assert rows[name] == [means[name], worst[name]]
    assert rows["always the last arm"] == [means["always last"], worst["always last"]]
    unlabelled = [means[name] for name in ("uss-anchor", "uss-laplace", "uss-pd")]
    assert rows["no labels: uss-anchor, uss-laplace, uss-pd"][0] == ", ".join(unlabelled)
    tuned = ", ".join(means[f"thresholds, {labels} labels"] for labels in (30, 100, 300))
    assert rows["thresholds on confidences, tuned on 30, 100, 300 labels"][0] == tuned
    _, _, proofs = TEXTS["docs/choosing.md"].partition("## Proofs: `uss-pd`")
    factors = re.findall(r"(\d\.\d\d) times", proofs.partition("\n## ")[0])
    assert factors == [f"{float(means[name]):.2f}" for name in ("uss-pd", "uss-pd, 100 labels")]


@pytest.mark.parametrize("kind", [sw.USSLaplace, sw.USSPD])
def test_defaults_of_policies_are_those_documented(kind: Any) -> None:
    signature = inspect.signature(kind).parameters
    compared = 0
    for row in table_after("docs/policies.md", f"`sw.{kind.__name__}`\n"):
        for name in names_in(row[0]):
            assert name in signature
            try:
                documented = ast.literal_eval(row[1].strip("`"))
            except (SyntaxError, ValueError):  # in words
                continue
            if signature[name].default is not None:
                assert documented == signature[name].default, name
                compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    ("marker", "struct"),
    [
        ("`[[cascade]]`:", config.Cascade),
        ("`[[cascade.stage]]`, the cheapest first:", config.Stage),
    ],
)
def test_the_page_of_the_proxy_has_every_option(marker: str, struct: Any) -> None:
    rows = table_after("docs/proxy.md", marker)
    listed = {name for row in rows for name in names_in(row[0])}
    options = {field.name for field in msgspec.structs.fields(struct)}
    assert listed == options - {"stage", "embedding"}  # they are tables themselves
