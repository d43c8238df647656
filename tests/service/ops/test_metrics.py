"""Metrics of a real service, as Prometheus parses them."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from stopwise.service.counters import BOUNDS
from stopwise.service.domain.messages import (
    Arm,
    BatchRequest,
    CascadeSpec,
    LabelReport,
    OutputsRequest,
)
from stopwise.service.labels import report_label
from stopwise.service.metrics import metrics_page
from stopwise.service.service import Service
from tests.service.tools.sample_logs import open_round, running

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
ARMS = ["first", 'odd "name"\\', "last"]


def spec(name: str, kind: str = "uss-pd") -> CascadeSpec:
    arms = [Arm(arm, cost) for arm, cost in zip(ARMS, (0.1, 0.2, 0.3), strict=True)]
    return CascadeSpec(name, arms, context=2, policy={"kind": kind})


class Page:
    """The metrics page, parsed by the Prometheus client."""

    def __init__(self, page: bytes) -> None:
        families = text_string_to_metric_families(page.decode())
        self.families = {family.name: family for family in families}

    def __call__(self, name: str, **labels: str) -> float:
        (value,) = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if (sample.name, sample.labels) == (f"stopwise_{name}", labels)
        ]
        return value


async def page_of(service: Service) -> Page:
    return Page(await metrics_page(service))


async def played(service: Service, name: str) -> dict[tuple[str, str], list[int]]:
    """Play 40 rounds; return the expected counts of each pair: seen, differed."""
    pairs = {pair: [0, 0] for pair in combinations(ARMS, 2)}
    contexts = [[k / 40, 1 - k / 40] for k in range(40)]
    answers, _ = await service.open_rounds(name, BatchRequest(list(contexts[:30])), None)
    answers += [await open_round(service, context, name) for context in contexts[30:]]
    for k, answer in enumerate(answers[:35]):
        assert answer.stop is not None
        outputs = [k % 2, k % 3, k % 5][: answer.stop + 1]
        await service.report(name, answer.id, OutputsRequest(outputs))
        for (first, a), (second, b) in combinations(zip(ARMS, outputs, strict=False), 2):
            pairs[first, second][0] += 1
            pairs[first, second][1] += a != b
    await report_label(service, name, answers[0].id, LabelReport(1))
    return pairs


async def test_the_counts_of_cascades_survive_a_restart(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    async with running(where) as service:
        await service.create(spec("triage"), None)
        await service.create(spec("other", "uss-ucb"), None)  # ignores contexts
        pairs = await played(service, "triage")
        before = await service.state_hash()
        page, view = await page_of(service), await service.cascade("triage")
        policy: Any = service.state.cascades["triage"].policy
        effort = policy.effort
        assert await service.state_hash() == before  # reading metrics has no side effects
        assert page("events_total") == service.state.position
    for arm, stopped in zip(ARMS, view.stops, strict=True):
        assert page("rounds_total", cascade="triage", arm=arm) == stopped
        assert page("rounds_total", cascade="other", arm=arm) == 0
    assert view.mean_cost is not None
    assert page("cost_total", cascade="triage") == pytest.approx(40 * view.mean_cost)
    expected = {"outputs_total": 35, "labels_total": 1, "open_rounds": 5}
    expected |= {"refits_total": effort["passes"], "hessians_total": effort["hessians"]}
    expected |= {"rows_stored": effort["rows_stored"], "rows_visited_total": effort["rows_visited"]}
    expected |= {"settled_total": effort["settled"]}
    for name, value in expected.items():
        assert page(name, cascade="triage") == value, name
    assert effort["rows_stored"] > 0
    assert page("refits_total", cascade="other") == 0
    assert page("policy_bytes", cascade="triage") > 0
    assert pairs[ARMS[0], ARMS[1]][0] > 0
    for (first, second), (seen, differed) in pairs.items():
        where_ = {"cascade": "triage", "first": first, "second": second}
        if seen:
            assert page("pair_seen_total", **where_) == seen
            assert page("pair_differed_total", **where_) == differed
    assert (page("cascades"), page("ready"), page("writes_failing")) == (2, 1, 0)
    assert (page("waiting"), page("failed_writes_total")) == (0, 0)

    async with running(where) as service:
        again = await page_of(service)
    for name, family in page.families.items():
        for sample in family.samples:
            # Allocations differ after a restart.
            if "cascade" in sample.labels and name != "stopwise_policy_bytes":
                value = again(sample.name.removeprefix("stopwise_"), **sample.labels)
                assert value == sample.value, name

    documented = DOCS.read_text("utf-8")
    for name, family in page.families.items():
        assert family.documentation
        assert family.type != "unknown"
        total = "_total" if family.type == "counter" else ""
        assert name.startswith("process_") or f"`{name}{total}`" in documented, name
    assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= set(page.families)
    # Nothing is registered globally, so two services in a process do not clash.
    names = [family.name for family in REGISTRY.collect()]
    assert not [name for name in names if name.startswith("stopwise")]


async def test_responses_are_counted_by_duration(tmp_path: Path) -> None:
    times = [0.0001, 0.0009, 0.005, 0.005, 0.3, 99.0]  # 0.005 is the bound of a bucket
    async with running(str(tmp_path / "log.db")) as service:
        service.counters.commits.add(0.002)
        for seconds in times:
            service.counters.count_response("open_round", 201, seconds)
        service.counters.count_response("open_round", 429, 0.001)
        page = await page_of(service)
    where = {"route": "open_round", "status": "201"}
    assert page("requests_total", **where) == len(times)
    assert page("requests_total", route="open_round", status="429") == 1
    assert page("request_seconds_count", **where) == len(times)
    assert page("request_seconds_sum", **where) == pytest.approx(sum(times))
    for bound in (*BOUNDS, float("inf")):
        le = "+Inf" if bound > 1e9 else repr(bound)
        below = sum(seconds <= bound for seconds in times)
        assert page("request_seconds_bucket", le=le, **where) == below, bound
    assert page("commit_seconds_count") >= 1
