"""Traces of the service, received by a collector on loopback."""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.service.harness import CONTEXT, REVEALING, ROUNDS, SPEC, STAGED, keys_in, served

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
OPEN = "POST /v1/cascades/{name}/rounds"


class Collector:
    """An OTLP/HTTP server that stores the requests it receives."""

    def __init__(self) -> None:
        requests: list[ExportTraceServiceRequest] = []
        paths: list[str] = []
        self.requests = requests
        self.paths = paths

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                requests.append(ExportTraceServiceRequest.FromString(body))
                paths.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def spans(self) -> list[Any]:
        """Return all spans in the order of their start."""
        spans = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(spans, key=lambda span: span.start_time_unix_nano)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans() if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    thread.join()
    collector.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in span.attributes
    }


@contextmanager
def traced(folder: Path, collector: Collector, **settings: Any) -> Iterator[Any]:
    """Serve with traces; the collector has all spans after the service has stopped."""
    with served(folder, traces=collector.url, **settings) as running:
        yield running


def test_requests_and_rounds_have_spans_in_the_caller_trace(
    tmp_path: Path, collector: Collector
) -> None:
    with traced(tmp_path, collector) as running:
        running.post("/v1/cascades", SPEC)
        opened = running.post(ROUNDS, CONTEXT, headers=PARENT).json()
        outputs = {"outputs": [1, 0, 1][: opened["stop"] + 1]}
        path = f"{ROUNDS}/{opened['id']}/outputs"
        for _ in range(2):  # the second report ends nothing
            assert running.post(path, outputs).json()["status"] == "learned"
        for other in ("/healthz", "/metrics", "/v1/cascades/none"):
            running.get(other)
    assert set(collector.paths) == {"/v1/traces"}
    resource = attributes(collector.requests[0].resource_spans[0].resource)
    assert resource["service.name"] == "stopwise"

    (opening,) = collector.named(OPEN)
    assert (opening.trace_id.hex(), opening.parent_span_id.hex()) == (TRACE, CALLER)
    assert opening.kind == opening.SPAN_KIND_SERVER
    assert attributes(opening) == {
        "http.request.method": "POST",
        "http.route": "/v1/cascades/{name}/rounds",
        "http.response.status_code": 201,
        "url.path": ROUNDS,
        "url.scheme": "http",
        "stopwise.cascade": "triage",
        "stopwise.round": opened["id"],
        "stopwise.stop": opened["stop"],
        "stopwise.arm": opened["arm"],
        "stopwise.cost": opened["cost"],
    }
    reports = collector.named(OPEN + "/{id}/outputs")
    assert [attributes(report)["stopwise.round"] for report in reports] == [opened["id"]] * 2
    assert not reports[0].parent_span_id  # sent without traceparent

    (round_,) = collector.named("stopwise.round")
    assert (round_.trace_id, round_.parent_span_id) == (opening.trace_id, opening.span_id)
    assert round_.start_time_unix_nano == opening.start_time_unix_nano
    assert round_.end_time_unix_nano == reports[0].end_time_unix_nano
    assert [link.span_id for link in round_.links] == [reports[0].span_id]
    expected = {name: value for name, value in attributes(opening).items() if "stopwise" in name}
    assert attributes(round_) == expected

    others = [span.name for span in collector.spans() if span not in (opening, round_, *reports)]
    assert others == ["POST /v1/cascades", "GET /v1/cascades/{name}"]  # no probes


def test_batches_and_staged_rounds_have_spans(tmp_path: Path, collector: Collector) -> None:
    with traced(tmp_path, collector) as running:
        for spec in (SPEC, REVEALING):
            running.post("/v1/cascades", spec)
        batch = running.post(f"{ROUNDS}:batch", {"contexts": [[0.1, 0.2]] * 3}).json()["rounds"]
        for opened in batch[:2]:
            running.post(f"{ROUNDS}/{opened['id']}/outputs", {"outputs": [1], "final": True})
        staged = running.post(STAGED, {"context": [0.3]}).json()
        arms = ["rule", "model", "person"]
        while (arm := staged.get("next")) is not None:
            body: dict[str, Any] = {"outputs": {arms[arm]: arm % 2}}
            if arm < 2:
                body["revealed"] = [0.5]
            staged = running.post(f"{STAGED}/{staged['id']}/outputs", body).json()
    (opening,) = collector.named(OPEN + ":batch")
    rounds = collector.named("stopwise.round")
    ids = [attributes(span)["stopwise.round"] for span in rounds]
    assert sorted(ids) == sorted([batch[0]["id"], batch[1]["id"], staged["id"]])
    assert {span.parent_span_id for span in rounds[:2]} == {opening.span_id}
    assert attributes(rounds[2])["stopwise.cascade"] == "stages"
    assert attributes(rounds[2])["stopwise.stop"] == staged["stop"]


def test_unauthenticated_requests_have_no_spans_and_internal_errors_have_a_status(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, keys = keys_in(tmp_path)
    with traced(tmp_path, collector, keys=file) as running:
        assert running.post("/v1/cascades", SPEC).status_code == 401
        assert running.get("/v1/cascades/triage", key=keys["decide"]).status_code == 404
        monkeypatch.setattr(running.service, "cascades", None)
        assert running.get("/v1/cascades", key=keys["decide"]).status_code == 500
        bad = {"traceparent": "00-rubbish"}
        path = "/v1/cascades/triage"
        assert running.get(path, key=keys["decide"], headers=bad).status_code == 404
    first, failed, last = collector.spans()
    assert attributes(first)["http.response.status_code"] == 404
    assert first.status.code == last.status.code == first.status.STATUS_CODE_UNSET
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert attributes(failed)["error.type"] == "500"
    assert not last.parent_span_id


def test_an_unavailable_collector_does_not_affect_requests(tmp_path: Path) -> None:
    closed = Collector()
    closed.server.server_close()
    with traced(tmp_path, closed, stop_timeout=1.0) as running:
        assert running.post("/v1/cascades", SPEC).status_code == 201
        assert running.post(ROUNDS, CONTEXT).status_code == 201


def test_without_traces_opentelemetry_is_not_imported() -> None:
    code = "import sys, stopwise.service.http.app; print('opentelemetry' in sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
