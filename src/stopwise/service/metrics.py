"""Metrics for Prometheus: counts of this process, and counts of the log, read from the state.

Those of the log do not start at zero with the process, and every replica that follows a cascade has
the same.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, TypeAlias

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stopwise.policies.pairwise import PairwisePolicy
from stopwise.service.counters import BOUNDS, Histogram
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.server_log import LOG
from stopwise.service.service import Service
from stopwise.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = [*map(repr, BOUNDS), "+Inf"]
_PROCESS = ProcessCollector(registry=None)  # memory, processor time, open files


async def metrics_page(service: Service) -> bytes:
    """Return all metrics in the text format of Prometheus (`CONTENT_TYPE`).

    The state is read here; formatting takes several times as long, and runs in a thread.
    """
    families = [*_of_process(service), *_of_cascades(service), *_PROCESS.collect()]
    read = SimpleNamespace(collect=lambda: families)
    return await asyncio.to_thread(generate_latest, read)  # pyright: ignore[reportArgumentType] (it calls `collect` alone)


_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_Value: TypeAlias = Callable[[ServedCascade], float]


def _family(
    kind: Any, name: str, words: str, labels: str, rows: Iterable[tuple[Any, ...]]
) -> Metric:
    """Return a family of metrics; a row has the values of the labels, then what is measured."""
    family = kind(f"stopwise_{name}", words, labels=labels.split())
    for row in rows:
        family.add_metric(*row)
    return family


def _of_process(service: Service) -> Iterable[Metric]:
    state, counters = service.state, service.counters
    single: list[tuple[Any, str, str, float]] = [
        (_GAUGE, "ready", "1 while requests are served, as /readyz reports it.", service.ready),
        (_GAUGE, "waiting", "Requests that wait to be written.", service.writer.waiting),
        (_GAUGE, "lag_seconds", "Seconds since this process last had the entire log.", service.lag),
        (
            _GAUGE,
            "writes_failing",
            "1 while nothing can be written.",
            bool(service.writer.write_error),
        ),
        (_GAUGE, "cascades", "Cascades, the retired included.", len(state.cascades)),
        (_COUNTER, "events", "Events of the log that this process has read.", state.position),
        (_COUNTER, "failed_writes", "How often writing began to fail.", counters.failed_writes),
        (_COUNTER, "snapshots", "Snapshots that this process has written.", counters.snapshots),
    ]
    for kind, name, words, value in single:
        yield _family(kind, name, words, "", [([], float(value))])
    version = [([__version__], 1)]
    yield _family(_GAUGE, "build_info", "Always 1; the version is a label.", "version", version)
    happened = ((list(values), n) for values, n in counters.proxy.items())
    words = "What a proxy did beside answering: rounds in shadow, stages that failed, and so on."
    yield _family(_COUNTER, "proxy", words, "cascade event", happened)
    words = "How long commits to the store took; one has many events."
    yield _family(_HISTOGRAM, "commit_seconds", words, "", [([], *_measured(counters.commits))])
    answers = [([route, str(status)], one) for (route, status), one in counters.answers.items()]
    requests = ((values, sum(one.counts)) for values, one in answers)
    yield _family(_COUNTER, "requests", "Requests answered.", "route status", requests)
    words = "How long requests took to answer, durable commit included."
    seconds = ((values, *_measured(one)) for values, one in answers)
    yield _family(_HISTOGRAM, "request_seconds", words, "route status", seconds)


def _measured(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    buckets = zip(_LABELS, map(float, accumulate(histogram.counts)), strict=True)
    return list(buckets), histogram.total


def _effort(name: str) -> _Value:
    def value(one: ServedCascade) -> float:
        return one.policy.effort.get(name, 0) if isinstance(one.policy, PairwisePolicy) else 0

    return value


def _labels(name: str) -> _Value:
    return lambda one: getattr(one.label_counts, name)


def _bytes(one: ServedCascade) -> float:
    return one.policy.nbytes if isinstance(one.policy, PairwisePolicy) else 0


def _cost(one: ServedCascade) -> float:
    return float(one.arms.cumulative @ one.counts.stops_total)


# Kind, name, help, and value for a cascade.
_PER_CASCADE: tuple[tuple[Any, str, str, _Value], ...] = (
    (_COUNTER, "outputs", "Rounds that were learned from.", lambda one: one.counts.outputs_total),
    (_COUNTER, "labels", "Rounds that were labelled.", lambda one: one.counts.labels_total),
    (_COUNTER, "labels_asked", "Labels that were asked for.", _labels("asked")),
    (_COUNTER, "changes", "Changes of disagreement.", lambda one: one.counts.changes_total),
    (_COUNTER, "cost", "Cost of all rounds, in the unit of the cascade.", _cost),
    (_COUNTER, "refits", "Passes over history that exact decisions needed.", _effort("passes")),
    (_COUNTER, "hessians", "Hessians computed in these passes.", _effort("hessians")),
    (_COUNTER, "rows_visited", "Rows visited by these passes.", _effort("rows_visited")),
    (_COUNTER, "settled", "Decisions made without a certificate.", _effort("settled")),
    (_GAUGE, "open_rounds", "Rounds that wait for outputs.", lambda one: len(one.ledger.open)),
    (
        _GAUGE,
        "labels_wanted",
        "Labels asked for.",
        lambda one: len(one.ledger.answerable_labels()),
    ),
    (_GAUGE, "labels_missing", "Labels asked for that count as missing.", _labels("missing")),
    (_GAUGE, "rows_stored", "Distinct rows of history in memory.", _effort("rows_stored")),
    (_GAUGE, "policy_bytes", "Memory of what was learned.", _bytes),
)


def _values(cascade: ServedCascade) -> list[float] | None:
    """Return the values of `_PER_CASCADE`; None: they cannot be read, and others can."""
    try:
        return [value(cascade) for _, _, _, value in _PER_CASCADE]
    except Exception as error:
        LOG.error("a cascade has no metrics", extra={"cascade": cascade.spec.name}, exc_info=error)
        return None


def _of_cascades(service: Service) -> Iterable[Metric]:
    state = service.state
    read = [(one.spec.name, one, _values(one)) for one in state.followed()]
    cascades = [(name, one) for name, one, values in read if values is not None]
    for k, (kind, name, words, _) in enumerate(_PER_CASCADE):
        rows = (([cascade], values[k]) for cascade, _, values in read if values is not None)
        yield _family(kind, name, words, "cascade", rows)
    shown = [(name, 0) for name, _ in cascades] + [(name, 1) for name in state.failed]
    words = "1 while a cascade has failed and is being read from the log again."
    yield _family(_GAUGE, "cascade_failed", words, "cascade", (([name], n) for name, n in shown))
    words = "How often a cascade has failed in this process."
    counted = service.counters.cascade_failures
    failures = (([name], counted[name]) for name, _ in shown)
    yield _family(_COUNTER, "cascade_failures", words, "cascade", failures)
    rounds = [
        ([cascade, arm], stopped)
        for cascade, one in cascades
        for arm, stopped in zip(one.arms.names, one.counts.stops_total, strict=True)
    ]
    words = "Rounds, by the arm at which they stop."
    yield _family(_COUNTER, "rounds", words, "cascade arm", rounds)
    pairs = [
        ([cascade, one.arms.names[i], one.arms.names[j]], k, one.counts)
        for cascade, one in cascades
        for k, (i, j) in enumerate(one.arms.pairs())
        if one.counts.seen_total[k]  # 15 arms have 105 pairs, most never seen
    ]
    for name, words in (
        ("seen", "Rounds in which both of two arms answered."),
        ("differed", "Of these, rounds in which they disagreed."),
    ):
        values = ((labels, getattr(counts, f"{name}_total")[k]) for labels, k, counts in pairs)
        yield _family(_COUNTER, f"pair_{name}", words, "cascade first second", values)
