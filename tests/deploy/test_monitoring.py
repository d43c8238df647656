"""deploy/grafana and deploy/prometheus: they name metrics and labels that a real service has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.service.harness import CONTEXT, ROUNDS, SPEC, served

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARD = json.loads((DEPLOY / "grafana" / "stopwise.json").read_text("utf-8"))
GROUPS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
# What Prometheus itself adds to every series, and the one that it makes.
ADDED = {"job", "instance"}
GROUPING = {"by", "on", "without", "ignoring"}
WORDS = GROUPING | {"and", "or", "unless", "group_left", "group_right", "bool", "offset"}
FUNCTIONS = {"sum", "max", "min", "rate", "increase", "histogram_quantile", "label_values"}
TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"]*")|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])'
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_]\w*)"
    r"|(?P<mark>=~|!~|!=|==|>=|<=|[(){},=<>+\-*/]))"
)
Uses = dict[str, set[str]]  # metric → labels by which it is selected; "": those of groups


def tokens(expression: str) -> list[tuple[str, str]]:
    """Split an expression of PromQL; whatever is no token of it fails."""
    found, at = list[tuple[str, str]](), 0
    while expression[at:].strip():
        one = TOKEN.match(expression, at)
        assert one is not None, f"not PromQL from here: {expression[at:]!r}"
        found.append((str(one.lastgroup), one[0].strip()))
        at = one.end()
    return found


def used(expression: str) -> Uses:
    """Return the metrics that an expression names, and the labels."""
    uses: Uses = {"": set()}
    opened, metric, grouping = list[str](), "", False
    parts = tokens(expression)
    for place, (kind, text) in enumerate(parts):
        after = parts[place + 1][1] if place + 1 < len(parts) else ""
        if text in "({":
            opened.append(text)
        elif text in ")}":
            assert opened.pop() == {")": "(", "}": "{"}[text], expression
            grouping = False
        elif kind == "name" and opened[-1:] == ["{"]:
            assert after in {"=", "!=", "=~", "!~"}, (text, expression)
            uses[metric].add(text)
        elif kind == "name" and grouping:
            uses[""].add(text)
        elif kind == "name" and text in WORDS:
            grouping = text in GROUPING
        elif kind == "name" and text not in FUNCTIONS | {"job", "instance", "cascade"}:
            assert after != "(", f"no such function: {text}"
            metric = text
            uses.setdefault(metric, set())
    assert not opened, expression
    assert len(uses) > 1, expression
    return uses


def missing(expression: str, page: dict[str, set[str]]) -> set[str]:
    """Return the metrics and labels of an expression that the page has not."""
    uses = used(expression)
    grouped = uses.pop("")
    found = {metric for metric in uses if metric not in page}
    for metric, labels in uses.items():
        found |= labels - page.get(metric, labels) - ADDED
    return found | (grouped - ADDED.union(*(page.get(metric, grouped) for metric in uses)))


def queries() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for one in BOARD["templating"]["list"]:
        if one["type"] == "query":
            yield one["name"], one["query"]["query"]
    for one in BOARD["annotations"]["list"]:
        yield one["name"], one["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The samples of a service that has served some rounds: name → labels."""
    with served(tmp_path_factory.mktemp("deploy")) as running:
        running.post("/v1/cascades", SPEC)
        for k in range(5):
            opened = running.post(ROUNDS, CONTEXT).json()
            body = {"outputs": [1, 0, k % 2][: opened["stop"] + 1]}
            running.post(f"{ROUNDS}/{opened['id']}/outputs", body)
        text = running.get("/metrics").text
    samples: dict[str, set[str]] = {"up": set()}  # by Prometheus, for every target
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            samples.setdefault(one.name, set()).update(one.labels)
    return samples


def test_every_metric_and_label_exists(page: dict[str, set[str]]) -> None:
    assert len(list(queries())) > 35
    for place, expression in queries():
        assert missing(expression, page) == set(), place


def test_legends_and_texts_name_labels_that_the_query_keeps() -> None:
    """A legend with another label would be empty."""
    shown = [(one["expr"], one["legendFormat"]) for p in BOARD["panels"] for one in p["targets"]]
    shown += [(rule["expr"], str(rule["annotations"])) for rule in RULES]
    for expression, text in shown:
        asked = set(re.findall(r"{{ ?(?:\$labels\.)?([a-z]+) ?}}", text))
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
        assert asked <= (grouped or ADDED), (expression, asked)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(stopwise_round_total[5m])", {"stopwise_round_total"}),
        ('stopwise_rounds_total{depth="1"}', {"depth"}),
        ("sum by (depth) (stopwise_rounds_total)", {"depth"}),
    ],
)
def test_what_does_not_exist_is_found(
    page: dict[str, set[str]], expression: str, wrong: set[str]
) -> None:
    assert missing(expression, page) == wrong


@pytest.mark.parametrize("expression", ["sum(stopwise_ready", "rate(up[5x])", "stopwise_ready{a}"])
def test_what_is_not_promql_is_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        used(expression)


def test_every_alert_says_how_grave_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith((".", "?"))
        assert rule["alert"] == "StopwiseChange" or re.fullmatch(r"\d+[smhd]", rule["for"])
    page = (DEPLOY.parent / "docs" / "deployment.md").read_text("utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    panels: list[dict[str, Any]] = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"]
    cells = [
        (x, y)
        for one in (panel["gridPos"] for panel in panels)
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len(set(cells)) == len(cells)  # none covers another
    names = {one["name"] for one in BOARD["templating"]["list"]}
    asked = set(re.findall(r"\$(\w+)", json.dumps(BOARD).replace("${datasource}", "")))
    assert asked - {"__rate_interval"} <= names
