"""Grafana dashboard and Prometheus alerts, compared with the metrics of a real service."""

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
# Labels that Prometheus adds to every series.
ADDED = {"job", "instance"}
GROUPING = {"by", "on", "without", "ignoring"}
WORDS = GROUPING | {"and", "or", "unless", "group_left", "group_right", "bool", "offset"}
FUNCTIONS = {"sum", "max", "min", "rate", "increase", "histogram_quantile", "label_values"}
TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"]*")|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])'
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_]\w*)"
    r"|(?P<mark>=~|!~|!=|==|>=|<=|[(){},=<>+\-*/]))"
)
Uses = dict[str, set[str]]  # metric → labels of its selectors; "" → labels of groupings


def tokens(expression: str) -> list[tuple[str, str]]:
    """Split a PromQL expression into tokens; fail on invalid characters."""
    parts: list[tuple[str, str]] = []
    at = 0
    while expression[at:].strip():
        match = TOKEN.match(expression, at)
        assert match is not None, f"invalid PromQL: {expression[at:]!r}"
        parts.append((str(match.lastgroup), match[0].strip()))
        at = match.end()
    return parts


def used(expression: str) -> Uses:
    """Return the metrics and labels in an expression."""
    uses: Uses = {"": set()}
    opened: list[str] = []
    metric = ""
    grouping = False
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
            assert after != "(", f"unknown function: {text}"
            metric = text
            uses.setdefault(metric, set())
    assert not opened, expression
    assert len(uses) > 1, expression
    return uses


def missing(expression: str, page: dict[str, set[str]]) -> set[str]:
    """Return the metrics and labels of an expression that do not exist."""
    uses = used(expression)
    grouped = uses.pop("")
    unknown = {metric for metric in uses if metric not in page}
    for metric, labels in uses.items():
        unknown |= labels - page.get(metric, labels) - ADDED
    return unknown | (grouped - ADDED.union(*(page.get(metric, grouped) for metric in uses)))


def queries() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for annotation in BOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of the samples of a real service, by name."""
    with served(tmp_path_factory.mktemp("deploy")) as running:
        running.post("/v1/cascades", SPEC)
        for k in range(5):
            opened = running.post(ROUNDS, CONTEXT).json()
            body = {"outputs": [1, 0, k % 2][: opened["stop"] + 1]}
            running.post(f"{ROUNDS}/{opened['id']}/outputs", body)
        text = running.get("/metrics").text
    samples: dict[str, set[str]] = {"up": set()}  # added by Prometheus
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


def test_every_metric_and_label_exists(page: dict[str, set[str]]) -> None:
    assert len(list(queries())) > 35
    for place, expression in queries():
        assert missing(expression, page) == set(), place


def test_legends_and_texts_use_labels_that_the_query_keeps() -> None:
    """Other labels would be empty."""
    shown = [
        (target["expr"], target["legendFormat"])
        for panel in BOARD["panels"]
        for target in panel["targets"]
    ]
    shown += [(rule["expr"], str(rule["annotations"])) for rule in RULES]
    for expression, text in shown:
        labels = set(re.findall(r"{{ ?(?:\$labels\.)?([a-z]+) ?}}", text))
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
        assert labels <= (grouped or ADDED), (expression, labels)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(stopwise_round_total[5m])", {"stopwise_round_total"}),
        ('stopwise_rounds_total{depth="1"}', {"depth"}),
        ("sum by (depth) (stopwise_rounds_total)", {"depth"}),
    ],
)
def test_unknown_metrics_and_labels_are_detected(
    page: dict[str, set[str]], expression: str, wrong: set[str]
) -> None:
    assert missing(expression, page) == wrong


@pytest.mark.parametrize("expression", ["sum(stopwise_ready", "rate(up[5x])", "stopwise_ready{a}"])
def test_invalid_promql_is_detected(expression: str) -> None:
    with pytest.raises(AssertionError):
        used(expression)


def test_every_alert_has_a_severity_a_summary_and_a_description() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith((".", "?"))
        assert rule["alert"] == "StopwiseChange" or re.fullmatch(r"\d+[smhd]", rule["for"])
    page = (DEPLOY.parent / "docs" / "deployment.md").read_text("utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels: list[dict[str, Any]] = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_the_variables_of_the_dashboard_exist() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    used_names = set(re.findall(r"\$(\w+)", json.dumps(BOARD).replace("${datasource}", "")))
    assert used_names - {"__rate_interval"} <= names
