"""Metrics: what a real service did is what Prometheus reads, and reading it changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import combinations
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from stopwise.service.messages import (
    Arm,
    BatchRequest,
    CascadeSpec,
    LabelRequest,
    OutputsRequest,
    RoundRequest,
)
from stopwise.service.metrics import BOUNDS, MOST_SERIES, OTHER, Counters, Metrics
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.store import open_store

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
ARMS = ["first", 'odd "name"\\', "last"]
COSTS = [0.1, 0.2, 0.3]


def spec(name: str, kind: str = "uss-pd") -> CascadeSpec:
    arms = [Arm(arm, cost) for arm, cost in zip(ARMS, COSTS, strict=True)]
    return CascadeSpec(name, arms, context=2, policy={"kind": kind})


def with_service(folder: Path, use: Callable[[Service], Awaitable[None]]) -> None:
    async def run() -> None:
        settings = Settings(store=str(folder / "log.db"))
        service = Service(open_store(settings.store), settings)
        await service.start()
        try:
            while not service.ready:
                await asyncio.sleep(0.01)
            await use(service)
        finally:
            await service.stop()

    asyncio.run(run())


class Page:
    """A page as read by the parser of Prometheus."""

    def __init__(self, page: bytes) -> None:
        self.families = {one.name: one for one in text_string_to_metric_families(page.decode())}

    def __call__(self, sample: str, **labels: str) -> float:
        found = [
            one.value
            for family in self.families.values()
            for one in family.samples
            if one.name == sample and one.labels == labels
        ]
        assert len(found) == 1, (sample, labels, found)
        return found[0]


async def played(service: Service, name: str) -> dict[tuple[str, str], list[int]]:
    """Play 40 rounds; return what should be counted for each pair: seen, differed."""
    pairs = {pair: [0, 0] for pair in combinations(ARMS, 2)}
    contexts = [[k / 40, 1 - k / 40] for k in range(40)]
    answers, _ = await service.open_rounds(name, BatchRequest(list(contexts[:30])), None)
    for context in contexts[30:]:
        answers += (await service.open_rounds(name, RoundRequest(context), None))[0]
    for k, answer in enumerate(answers[:35]):
        stop = answer.stop
        assert stop is not None
        outputs = [k % 2, k % 3, k % 5][: stop + 1]
        await service.report(name, answer.id, OutputsRequest(outputs))
        for (i, first), (j, second) in combinations(list(enumerate(ARMS))[: stop + 1], 2):
            pairs[first, second][0] += 1
            pairs[first, second][1] += outputs[i] != outputs[j]
    await service.label(name, answers[0].id, LabelRequest(1))
    return pairs


def test_the_page_has_what_was_done(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        await service.create(spec("triage"), None)
        await service.create(spec("other"), None)
        pairs = await played(service, "triage")
        page = Page(await Metrics(service).page_aside())
        view = await service.cascade("triage")
        for arm, stopped in zip(ARMS, view.stops, strict=True):
            assert page("stopwise_rounds_total", cascade="triage", arm=arm) == stopped
            assert page("stopwise_rounds_total", cascade="other", arm=arm) == 0
        assert view.mean_cost is not None
        assert page("stopwise_cost_total", cascade="triage") == pytest.approx(40 * view.mean_cost)
        assert page("stopwise_outputs_total", cascade="triage") == 35
        assert page("stopwise_labels_total", cascade="triage") == 1
        assert page("stopwise_open_rounds", cascade="triage") == 5
        assert pairs[ARMS[0], ARMS[1]][0] > 0
        for (first, second), (seen, differed) in pairs.items():
            where = {"cascade": "triage", "first": first, "second": second}
            if seen:
                assert page("stopwise_pair_seen_total", **where) == seen
                assert page("stopwise_pair_differed_total", **where) == differed
        effort = service.state.cascades["triage"].policy.effort  # pyright: ignore[reportAttributeAccessIssue] (USS-PD has it)
        assert effort["rows_kept"] > 0
        assert page("stopwise_rows_kept", cascade="triage") == effort["rows_kept"]
        assert page("stopwise_refits_total", cascade="triage") == effort["passes"]
        assert page("stopwise_hessians_total", cascade="triage") == effort["hessians"]
        assert page("stopwise_policy_bytes", cascade="triage") > 0
        assert page("stopwise_events_total") == service.state.position
        assert page("stopwise_cascades") == 2
        assert (page("stopwise_ready"), page("stopwise_writes_failing")) == (1, 0)
        assert (page("stopwise_waiting"), page("stopwise_failed_writes_total")) == (0, 0)

    with_service(tmp_path, use)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        await service.create(spec("triage"), None)
        await played(service, "triage")
        before = await service.state_hash()
        metrics = Metrics(service)
        for _ in range(3):
            await metrics.page_aside()
        service._hash = None  # so that it is computed again
        assert await service.state_hash() == before

    with_service(tmp_path, use)


def test_counts_of_the_log_outlive_the_process(tmp_path: Path) -> None:
    pages: list[Page] = []

    async def first(service: Service) -> None:
        await service.create(spec("triage"), None)
        await played(service, "triage")
        pages.append(Page(await Metrics(service).page_aside()))

    async def again(service: Service) -> None:
        pages.append(Page(await Metrics(service).page_aside()))

    with_service(tmp_path, first)
    with_service(tmp_path, again)
    for name, family in pages[0].families.items():
        for one in family.samples:
            # memory is laid out anew, and what is in it is the same
            if "cascade" in one.labels and name != "stopwise_policy_bytes":
                assert pages[1](one.name, **one.labels) == one.value, name


def test_a_policy_that_learns_without_contexts_has_its_page_too(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        await service.create(spec("plain", "uss-ucb"), None)
        page = Page(await Metrics(service).page_aside())
        assert page("stopwise_refits_total", cascade="plain") == 0

    with_service(tmp_path, use)


def test_all_metrics_have_help_and_are_documented(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        await service.create(spec("triage"), None)
        await played(service, "triage")
        page = Page(await Metrics(service).page_aside())
        Metrics(service)  # a second one does not clash with the first
        assert all(family.documentation for family in page.families.values())
        assert all(family.type != "unknown" for family in page.families.values())
        assert not [one.name for one in REGISTRY.collect() if one.name.startswith("stopwise")]
        assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= set(page.families)
        documented = DOCS.read_text("utf-8")
        for name, family in page.families.items():
            total = "_total" if family.type == "counter" else ""
            assert name.startswith("process_") or f"`{name}{total}`" in documented, name

    with_service(tmp_path, use)


def test_answers_are_counted_with_how_long_they_took(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        times = [0.0001, 0.0009, 0.005, 0.005, 0.3, 99.0]  # 0.005: on the edge of a bucket
        service.counters.commits.add(0.002)
        for seconds in times:
            service.counters.answered("open_round", 201, seconds)
        service.counters.answered("open_round", 429, 0.001)
        page = Page(await Metrics(service).page_aside())
        where = {"route": "open_round", "status": "201"}
        assert page("stopwise_requests_total", **where) == len(times)
        assert page("stopwise_requests_total", route="open_round", status="429") == 1
        assert page("stopwise_request_seconds_count", **where) == len(times)
        assert page("stopwise_request_seconds_sum", **where) == pytest.approx(sum(times))
        for bound in BOUNDS:
            below = sum(seconds <= bound for seconds in times)
            found = page("stopwise_request_seconds_bucket", le=repr(bound), **where)
            assert found == below, bound
        assert page("stopwise_request_seconds_bucket", le="+Inf", **where) == len(times)
        assert page("stopwise_commit_seconds_count") >= 1

    with_service(tmp_path, use)


def test_the_number_of_series_is_limited() -> None:
    counters = Counters()
    for k in range(3 * MOST_SERIES):
        counters.answered(f"/v1/{k}", 404, 0.001)
    assert len(counters.answers) == MOST_SERIES + 1
    assert sum(counters.answers[OTHER, 404].counts) == 2 * MOST_SERIES
