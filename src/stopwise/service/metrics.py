"""What a service tells Prometheus: numbers of this process, and numbers of the log.

Those of the log (decisions, outputs, pairs) are read from the state: they do not start at zero
again with the process, and every replica tells the same. Reading them changes nothing that was
learned.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from stopwise.service.numbers import BOUNDS, Histogram
from stopwise.version import __version__

if TYPE_CHECKING:
    from stopwise.service.learner import Learner
    from stopwise.service.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_EDGES = [*(repr(bound) for bound in BOUNDS), "+Inf"]


class Metrics:
    """The page that Prometheus reads, in a registry of its own.

    Parameters
    ----------
    service : Service
        Whose numbers are told, as they are at each call of `page`.
    """

    def __init__(self, service: "Service") -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collected(service))
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """Return the page, in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)

    async def page_aside(self) -> bytes:
        """Return the page without holding up the event loop.

        The numbers are read here, where nothing changes meanwhile. To put them into text takes
        several times as long (20 µs a line, and a thousand cascades have twenty thousand): that is
        left to a thread.
        """
        read = _Read(list(self._registry.collect()))
        return await asyncio.to_thread(generate_latest, read)  # pyright: ignore[reportArgumentType] (it asks for `collect` alone)


class _Read:
    """Numbers that have been read, in place of a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class _Collected(Collector):
    def __init__(self, service: "Service") -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not read a state that is still recovering."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield everything there is to tell."""
        service = self._service
        yield from _process(service)
        yield from _answers(service)
        cascades = list(service.state.cascades.values())
        yield from _totals(cascades)
        yield from _by_arm(cascades)
        yield from _by_pair(cascades)


def _process(service: "Service") -> Iterable[Metric]:
    build = GaugeMetricFamily(
        "stopwise_build_info", "Always 1; the version is a label.", labels=["version"]
    )
    build.add_metric([__version__], 1)
    yield build
    state, numbers = service.state, service.numbers
    gauges: list[tuple[str, str, float]] = [
        ("ready", "1 once the log has been read and requests are served, else 0.", service.ready),
        ("waiting", "Requests that wait to be written.", service.waiting),
        (
            "lag_seconds",
            "Seconds since this process last knew that it had read the whole log.",
            service.lag,
        ),
        (
            "writes_failing",
            "1 while nothing can be written to the store and requests get 503, else 0.",
            bool(service.trouble),
        ),
        ("cascades", "Cascades, the retired included.", len(state.cascades)),
    ]
    for name, words, value in gauges:
        yield GaugeMetricFamily(f"stopwise_{name}", words, value=float(value))
    counters: list[tuple[str, str, float]] = [
        ("events", "Events in the log, as far as this process has read it.", state.position),
        ("failed_writes", "How often writing to the store began to fail.", numbers.failed_writes),
        ("snapshots", "Snapshots that this process has written.", numbers.snapshots),
    ]
    for name, words, value in counters:
        yield CounterMetricFamily(f"stopwise_{name}", words, value=float(value))
    if not any(numbers.commits.counts):
        return
    commits = HistogramMetricFamily(
        "stopwise_commit_seconds", "How long commits to the store took; one holds many events."
    )
    commits.add_metric([], _buckets(numbers.commits), numbers.commits.total)
    yield commits


def _answers(service: "Service") -> Iterable[Metric]:
    requests = CounterMetricFamily(
        "stopwise_requests", "Requests answered, by route and status.", labels=["route", "status"]
    )
    seconds = HistogramMetricFamily(
        "stopwise_request_seconds",
        "How long requests took to answer, durable commit included.",
        labels=["route", "status"],
    )
    for (route, status), histogram in list(service.numbers.answers.items()):
        labels = [route, str(status)]
        requests.add_metric(labels, sum(histogram.counts))
        seconds.add_metric(labels, _buckets(histogram), histogram.total)
    yield requests
    yield seconds


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    return list(zip(_EDGES, map(float, accumulate(histogram.counts)), strict=True))


# name, what it says, whether it only grows, where it is found
_TOTALS: tuple[tuple[str, str, bool, Callable[["Learner"], float]], ...] = (
    (
        "outputs",
        "Rounds whose outputs were told, and learned from.",
        True,
        lambda one: one.tally.outputs_total,
    ),
    ("labels", "Rounds whose right answer was told.", True, lambda one: one.tally.labels_total),
    (
        "cost",
        "Cost of all decisions, in the unit of the cascade.",
        True,
        lambda one: float(one.cascade.cumulative @ one.tally.stops_total),
    ),
    (
        "open_decisions",
        "Decisions that wait for their outputs.",
        False,
        lambda one: len(one.ledger.open),
    ),
    (
        "refits",
        "Passes over history that exact decisions have needed.",
        True,
        lambda one: _effort(one, "passes"),
    ),
    (
        "hessians",
        "Curvatures computed in these passes.",
        True,
        lambda one: _effort(one, "hessians"),
    ),
    (
        "rows_visited",
        "Rows of history visited by these passes.",
        True,
        lambda one: _effort(one, "rows_visited"),
    ),
    (
        "rows_kept",
        "Distinct rows of history kept in memory.",
        False,
        lambda one: _effort(one, "rows_kept"),
    ),
    (
        "policy_bytes",
        "Memory of what was learned, in bytes.",
        False,
        lambda one: float(getattr(one.policy, "nbytes", 0)),
    ),
)


def _effort(learner: "Learner", name: str) -> float:
    effort: dict[str, int] = getattr(
        learner.policy, "effort", {}
    )  # policies without contexts: none
    return float(effort.get(name, 0))


def _totals(cascades: list["Learner"]) -> Iterable[Metric]:
    for name, words, grows, value in _TOTALS:
        kind: Any = CounterMetricFamily if grows else GaugeMetricFamily
        family = kind(f"stopwise_{name}", words, labels=["cascade"])
        for one in cascades:
            family.add_metric([one.spec.name], value(one))
        yield family


def _by_arm(cascades: list["Learner"]) -> Iterable[Metric]:
    decisions = CounterMetricFamily(
        "stopwise_decisions",
        "Decisions, by the arm at which they stopped.",
        labels=["cascade", "arm"],
    )
    shares = GaugeMetricFamily(
        "stopwise_depth_share",
        "Share of all decisions so far that stopped at an arm; for the last hour, take "
        "increase(stopwise_decisions_total[1h]).",
        labels=["cascade", "arm"],
    )
    for one in cascades:
        stops = one.tally.stops_total
        n = sum(stops)
        for arm, stopped in zip(one.cascade.names, stops, strict=True):
            labels = [one.spec.name, arm]
            decisions.add_metric(labels, stopped)
            if n:
                shares.add_metric(labels, stopped / n)
    yield decisions
    yield shares


def _by_pair(cascades: list["Learner"]) -> Iterable[Metric]:
    labels = ["cascade", "first", "second"]
    seen = CounterMetricFamily(
        "stopwise_pair_seen", "Rounds that revealed both arms of a pair.", labels=labels
    )
    differed = CounterMetricFamily(
        "stopwise_pair_differed", "Of these, rounds in which the two disagreed.", labels=labels
    )
    for one in cascades:
        names, tally = one.cascade.names, one.tally
        for (i, j), both, apart in zip(
            one.cascade.pairs(), tally.seen_total, tally.differed_total, strict=True
        ):
            if both:  # 15 arms have 105 pairs, most never seen
                where = [one.spec.name, names[i], names[j]]
                seen.add_metric(where, both)
                differed.add_metric(where, apart)
    yield seen
    yield differed
