"""Tables, defaults and figures on the pages are those of the code and of the results."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.engine import native
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.proxy import config
from tests.site.pages import PACKAGE, ROOT, TEXTS, names_in, table_after

CONTRIBUTING = TEXTS["CONTRIBUTING.md"]


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


def test_the_example_policy_in_contributing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule of the engine in place of the one that it adds, because that is C++."""
    _, _, after = CONTRIBUTING.partition("In `policies/greedy.py`, write the rule as a value")
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
        ("`[[cascade]]`:", config.CascadeConfig),
        ("`[[cascade.stage]]`, the cheapest first:", config.StageConfig),
    ],
)
def test_the_page_of_the_proxy_has_every_option(marker: str, struct: Any) -> None:
    rows = table_after("docs/proxy-settings.md", marker)
    listed = {name for row in rows for name in names_in(row[0])}
    options = {field.name for field in msgspec.structs.fields(struct)}
    assert listed == options - {"stage", "embedding"}  # they are tables themselves
