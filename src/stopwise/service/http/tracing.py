"""OpenTelemetry traces of the service; imported only if the setting ``traces`` asks for them.

The span of a request is a child of what its ``traceparent`` names. That of a round lasts from the
request that opened it, its parent, to the one that ended it; the process that opened it makes it.
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

KEEP_OPEN = 100_000  # rounds whose beginning is remembered
_TRACED = {route.id: route for route in ROUTES if route.path.startswith("/v1/")}  # no probes
_BODIES = {"open_round": RoundAnswer, "open_rounds": RoundList, "report_outputs": RoundAnswer}


class Traces:
    """Sends spans to a collector, in a thread; the SDK reads the variables OTEL_…."""

    def __init__(self, settings: Settings) -> None:
        named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "stopwise")}
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{settings.traces}".rstrip("/") + "/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._start = self._provider.get_tracer("stopwise").start_span
        self._settings = settings
        self._opened: dict[Any, Any] = {}  # cascade and round → when it began, in which context

    def answered(self, request: Request, name: str, response: Response, seconds: float) -> None:
        """Make the span of a request that was answered just now, and that of a round it ended."""
        route, status, end = _TRACED.get(name), response.status, time.time_ns()
        if route is None or status == 401:  # strangers make no spans
            return
        known: dict[str, Any] = {"http.request.method": request.method, "http.route": route.path}
        known |= {"http.response.status_code": status, "url.path": request.path}
        known["url.scheme"] = "http" if self._settings.tls_cert is None else "https"
        if "name" in request.params:
            known["stopwise.cascade"] = request.params["name"]
        caller = {one: request.headers.get(one) or "" for one in ("traceparent", "tracestate")}
        how: Any = {"kind": SpanKind.SERVER, "start_time": end - int(seconds * 1e9)}
        context = TraceContextTextMapPropagator().extract(caller)
        span = self._start(f"{route.method} {route.path}", context, attributes=known, **how)
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(StatusCode.ERROR)
        elif status < 300 and name in _BODIES and isinstance(response.body, bytes):
            body: Any = msgspec.json.decode(response.body, type=_BODIES[name])
            for one in [body] if name != "open_rounds" else body.rounds:
                self._round(request.params["name"], one, span, (how["start_time"], end))
        span.end(end)

    def _round(self, cascade: str, one: RoundAnswer, span: Span, times: tuple[int, int]) -> None:
        """Remember the beginning of a round; once it has ended, make its span."""
        known: Any = {"stopwise.round": one.id, "stopwise.arm": one.arm, "stopwise.cost": one.cost}
        known |= {} if one.stop is None else {"stopwise.stop": one.stop}
        span.set_attributes(known)  # of a batch, the last round
        if one.status == "open":
            self._opened.setdefault((cascade, one.id), (times[0], set_span_in_context(span)))
            if len(self._opened) > KEEP_OPEN:
                del self._opened[next(iter(self._opened))]
        elif began := self._opened.pop((cascade, one.id), None):
            known |= {"stopwise.cascade": cascade}
            how: Any = {"links": [Link(span.get_span_context())], "start_time": began[0]}
            self._start("stopwise.round", began[1], attributes=known, **how).end(times[1])

    def close(self) -> None:
        """Send what was not sent yet, as far as there is time."""
        ending = Thread(target=self._provider.shutdown, daemon=True)  # it may take half a minute
        ending.start()
        ending.join(self._settings.stop_timeout)
