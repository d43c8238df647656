"""Prometheus metrics of the process and of its cascades.

Metrics of cascades are read from the state: a restart does not reset them, and all replicas that
follow a cascade report the same values.
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
_BUCKETS = [*map(repr, BOUNDS), "+Inf"]
_PROCESS = ProcessCollector(registry=None)  # memory, CPU time, open files


async def metrics_page(service: Service) -> bytes:
    """Return all metrics in the Prometheus text format (`CONTENT_TYPE`).

    The state is read in the event loop. Formatting takes several times longer than reading, so it
    runs in a thread.
    """
    families = [*_process_metrics(service), *_cascade_metrics(service), *_PROCESS.collect()]
    registry = SimpleNamespace(collect=lambda: families)
    return await asyncio.to_thread(generate_latest, registry)  # pyright: ignore[reportArgumentType] (it only calls `collect`)


_COUNTER = CounterMetricFamily
_GAUGE = GaugeMetricFamily
_HISTOGRAM = HistogramMetricFamily
_Value: TypeAlias = Callable[[ServedCascade], float]


def _family(
    kind: Any, name: str, description: str, labels: str, rows: Iterable[tuple[Any, ...]]
) -> Metric:
    """Return a metric family; rows have label values, then a value or buckets and sum."""
    family = kind(f"stopwise_{name}", description, labels=labels.split())
    for row in rows:
        family.add_metric(*row)
    return family


def _process_metrics(service: Service) -> Iterable[Metric]:
    state, counters = service.state, service.counters
    single: list[tuple[Any, str, str, float]] = [
        (_GAUGE, "ready", "1 if /readyz responds with 200, else 0.", service.ready),
        (_GAUGE, "waiting", "Requests waiting for the writer.", service.writer.waiting),
        (
            _GAUGE,
            "lag_seconds",
            "Seconds since the state was last up to date; 0 if only this process writes the log.",
            service.lag,
        ),
        (
            _GAUGE,
            "writes_failing",
            "1 while writes to the store fail, else 0.",
            bool(service.writer.write_error),
        ),
        (_GAUGE, "cascades", "Cascades, including retired ones.", len(state.cascades)),
        (_COUNTER, "events", "Events that this process has read from the log.", state.position),
        (
            _COUNTER,
            "failed_writes",
            "Number of times that writes to the store began to fail.",
            counters.failed_writes,
        ),
        (_COUNTER, "snapshots", "Snapshots written by this process.", counters.snapshots),
    ]
    for kind, name, description, value in single:
        yield _family(kind, name, description, "", [([], float(value))])
    version = [([__version__], 1)]
    yield _family(_GAUGE, "build_info", "Always 1; the version is a label.", "version", version)
    yield _family(
        _COUNTER,
        "proxy",
        "Events of the proxy, such as rounds in shadow mode and failed stages.",
        "cascade event",
        ((list(labels), n) for labels, n in counters.proxy.items()),
    )
    yield _family(
        _HISTOGRAM,
        "commit_seconds",
        "Duration of commits to the store; one commit writes many events.",
        "",
        [([], *_histogram_values(counters.commits))],
    )
    responses = [
        ([route, str(status)], histogram) for (route, status), histogram in counters.answers.items()
    ]
    yield _family(
        _COUNTER,
        "requests",
        "Requests answered.",
        "route status",
        ((labels, sum(histogram.counts)) for labels, histogram in responses),
    )
    yield _family(
        _HISTOGRAM,
        "request_seconds",
        "Duration of requests, including the durable commit.",
        "route status",
        ((labels, *_histogram_values(histogram)) for labels, histogram in responses),
    )


def _histogram_values(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return the cumulative count of each bucket, and the sum of all values."""
    buckets = zip(_BUCKETS, map(float, accumulate(histogram.counts)), strict=True)
    return list(buckets), histogram.total


def _effort(name: str) -> _Value:
    def value(cascade: ServedCascade) -> float:
        policy = cascade.policy
        return policy.effort.get(name, 0) if isinstance(policy, PairwisePolicy) else 0

    return value


def _labels(name: str) -> _Value:
    return lambda cascade: getattr(cascade.label_counts, name)


def _bytes(cascade: ServedCascade) -> float:
    return cascade.policy.nbytes if isinstance(cascade.policy, PairwisePolicy) else 0


def _cost(cascade: ServedCascade) -> float:
    return float(cascade.arms.cumulative @ cascade.counts.stops_total)


# Kind, name, description, and value for a cascade.
_PER_CASCADE: tuple[tuple[Any, str, str, _Value], ...] = (
    (
        _COUNTER,
        "outputs",
        "Rounds that the policy has learned from.",
        lambda cascade: cascade.counts.outputs_total,
    ),
    (_COUNTER, "labels", "Rounds with a label.", lambda cascade: cascade.counts.labels_total),
    (_COUNTER, "labels_asked", "Labels that the policy has requested.", _labels("requested")),
    (
        _COUNTER,
        "changes",
        "Detected changes in the disagreement of two arms.",
        lambda cascade: cascade.counts.changes_total,
    ),
    (_COUNTER, "cost", "Total cost of all rounds, in the unit of the costs of the arms.", _cost),
    (_COUNTER, "refits", "Passes over the history to keep decisions exact.", _effort("passes")),
    (_COUNTER, "hessians", "Hessians computed in passes over the history.", _effort("hessians")),
    (_COUNTER, "rows_visited", "Rows read in passes over the history.", _effort("rows_visited")),
    (_COUNTER, "settled", "Decisions without a certificate.", _effort("settled")),
    (
        _GAUGE,
        "open_rounds",
        "Rounds waiting for outputs.",
        lambda cascade: len(cascade.ledger.open),
    ),
    (
        _GAUGE,
        "labels_wanted",
        "Requested labels that have not arrived yet.",
        lambda cascade: len(cascade.ledger.answerable_labels()),
    ),
    (_GAUGE, "labels_missing", "Requested labels that count as missing.", _labels("missing")),
    (_GAUGE, "rows_stored", "Distinct rows of the history in memory.", _effort("rows_stored")),
    (_GAUGE, "policy_bytes", "Memory of the policy in bytes.", _bytes),
)


def _values(cascade: ServedCascade) -> list[float] | None:
    """Return the values of `_PER_CASCADE`; log an error and return None if one of them fails."""
    try:
        return [value(cascade) for _, _, _, value in _PER_CASCADE]
    except Exception as error:
        LOG.error(
            "cannot compute the metrics of a cascade",
            extra={"cascade": cascade.spec.name},
            exc_info=error,
        )
        return None


def _cascade_metrics(service: Service) -> Iterable[Metric]:
    state = service.state
    rows = [
        (cascade, values)
        for cascade in state.followed()
        if (values := _values(cascade)) is not None
    ]
    for k, (kind, name, description, _) in enumerate(_PER_CASCADE):
        samples = (([cascade.spec.name], values[k]) for cascade, values in rows)
        yield _family(kind, name, description, "cascade", samples)
    cascades = [cascade for cascade, _ in rows]
    failed = dict.fromkeys((cascade.spec.name for cascade in cascades), 0)
    failed |= dict.fromkeys(state.failed, 1)
    yield _family(
        _GAUGE,
        "cascade_failed",
        "1 while a failed cascade is being reloaded from the log, else 0.",
        "cascade",
        (([name], value) for name, value in failed.items()),
    )
    failures = service.counters.cascade_failures
    yield _family(
        _COUNTER,
        "cascade_failures",
        "Times that the cascade failed in this process.",
        "cascade",
        (([name], failures[name]) for name in failed),
    )
    yield _family(
        _COUNTER,
        "rounds",
        "Rounds by the arm at which they stop.",
        "cascade arm",
        (
            ([cascade.spec.name, arm], stops)
            for cascade in cascades
            for arm, stops in zip(cascade.arms.names, cascade.counts.stops_total, strict=True)
        ),
    )
    pairs = [
        ([cascade.spec.name, cascade.arms.names[i], cascade.arms.names[j]], k, cascade.counts)
        for cascade in cascades
        for k, (i, j) in enumerate(cascade.arms.pairs())
        if cascade.counts.seen_total[k]  # 15 arms have 105 pairs, most never seen
    ]
    yield _family(
        _COUNTER,
        "pair_seen",
        "Rounds in which both arms of a pair answered.",
        "cascade first second",
        ((labels, counts.seen_total[k]) for labels, k, counts in pairs),
    )
    yield _family(
        _COUNTER,
        "pair_differed",
        "Rounds in which both arms of a pair answered and disagreed.",
        "cascade first second",
        ((labels, counts.differed_total[k]) for labels, k, counts in pairs),
    )
