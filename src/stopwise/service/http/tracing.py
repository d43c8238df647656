"""OpenTelemetry traces of the service; imported only if the setting ``traces`` enables them.

Every request and every round has a span. The parent of a request's span is the span in the
``traceparent`` header. A round's span lasts from the start of the request that opened the round to
the end of the request that ended it. Its parent is the span of the first of these requests. Only
the process that opened a round can create the span of the round.
"""

import os
import time
from threading import Thread
from typing import Any

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stopwise.service.domain.messages import RoundAnswer, RoundList
from stopwise.service.http.request import Request, Response
from stopwise.service.http.routes import ROUTES
from stopwise.service.settings import Settings

KEEP_OPEN = 100_000  # open rounds whose start times are remembered
_TRACED = {route.id: route for route in ROUTES if route.path.startswith("/v1/")}  # no probes
_BODIES = {"open_round": RoundAnswer, "open_rounds": RoundList, "report_outputs": RoundAnswer}


class Traces:
    """Sends spans to a collector in a thread; the SDK reads ``OTEL_…`` environment variables."""

    def __init__(self, settings: Settings) -> None:
        resource = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "stopwise")}
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{settings.traces}".rstrip("/") + "/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._start_span = self._provider.get_tracer("stopwise").start_span
        self._settings = settings
        self._opened: dict[Any, Any] = {}  # (cascade, round) → start time and parent context

    def record(self, request: Request, name: str, response: Response, seconds: float) -> None:
        """Record the span of a request that has just ended, and of the rounds that it ended."""
        route = _TRACED.get(name)
        status = response.status
        if route is None or status == 401:  # unauthenticated requests are not traced
            return
        end = time.time_ns()
        start = end - int(seconds * 1e9)
        attributes: dict[str, Any] = {
            "http.request.method": request.method,
            "http.route": route.path,
            "http.response.status_code": status,
            "url.path": request.path,
            "url.scheme": "http" if self._settings.tls_cert is None else "https",
        }
        if "name" in request.params:
            attributes["stopwise.cascade"] = request.params["name"]
        headers = ("traceparent", "tracestate")
        caller = {header: request.headers.get(header) or "" for header in headers}
        span = self._start_span(
            f"{route.method} {route.path}",
            TraceContextTextMapPropagator().extract(caller),
            attributes=attributes,
            kind=SpanKind.SERVER,
            start_time=start,
        )
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(StatusCode.ERROR)
        elif status < 300 and name in _BODIES and isinstance(response.body, bytes):
            body: Any = msgspec.json.decode(response.body, type=_BODIES[name])
            for answer in body.rounds if name == "open_rounds" else [body]:
                self._record_round(request.params["name"], answer, span, start, end)
        span.end(end)

    def _record_round(
        self, cascade: str, answer: RoundAnswer, span: Span, start: int, end: int
    ) -> None:
        """Remember when an open round began, or create the span of a round that has ended."""
        attributes: dict[str, Any] = {
            "stopwise.round": answer.id,
            "stopwise.arm": answer.arm,
            "stopwise.cost": answer.cost,
        }
        if answer.stop is not None:
            attributes["stopwise.stop"] = answer.stop
        span.set_attributes(attributes)  # a batch keeps the attributes of its last round
        if answer.status == "open":
            self._opened.setdefault((cascade, answer.id), (start, set_span_in_context(span)))
            if len(self._opened) > KEEP_OPEN:
                del self._opened[next(iter(self._opened))]
        elif opened := self._opened.pop((cascade, answer.id), None):
            round_start, parent = opened
            attributes["stopwise.cascade"] = cascade
            round_span = self._start_span(
                "stopwise.round",
                parent,
                attributes=attributes,
                links=[Link(span.get_span_context())],
                start_time=round_start,
            )
            round_span.end(end)

    def close(self) -> None:
        """Send the remaining spans; wait at most ``stop_timeout`` seconds."""
        # The shutdown may take half a minute.
        shutdown = Thread(target=self._provider.shutdown, daemon=True)
        shutdown.start()
        shutdown.join(self._settings.stop_timeout)
