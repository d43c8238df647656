"""Traces of the service, as a real collector on loopback receives them."""

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
    """A server that takes OTLP over HTTP, and keeps what it got."""

    def __init__(self) -> None:
        got = self.got = list[ExportTraceServiceRequest]()
        paths = self.paths = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                got.append(ExportTraceServiceRequest.FromString(body))
                paths.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def spans(self) -> list[Any]:
        """Return all spans in the order of their beginning."""
        scopes = [
            scope for got in self.got for one in got.resource_spans for scope in one.scope_spans
        ]
        found = [span for scope in scopes for span in scope.spans]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans() if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def traced(folder: Path, collector: Collector, **settings: Any) -> Iterator[Any]:
    """Serve with traces; once it has stopped, the collector has them all."""
    with served(folder, traces=collector.url, **settings) as running:
        yield running


def test_requests_and_rounds_have_spans_in_the_trace_of_the_caller(
    tmp_path: Path, collector: Collector
) -> None:
    with traced(tmp_path, collector) as running:
        running.post("/v1/cascades", SPEC)
        opened = running.post(ROUNDS, CONTEXT, headers=PARENT).json()
        outputs = {"outputs": [1, 0, 1][: opened["stop"] + 1]}
        path = f"{ROUNDS}/{opened['id']}/outputs"
        for _ in range(2):  # the second time nothing ends
            assert running.post(path, outputs).json()["status"] == "learned"
        for other in ("/healthz", "/metrics", "/v1/cascades/none"):
            running.get(other)
    assert set(collector.paths) == {"/v1/traces"}
    resource = attributes(collector.got[0].resource_spans[0].resource)
    assert resource["service.name"] == "stopwise"

    (asked,) = collector.named(OPEN)
    assert (asked.trace_id.hex(), asked.parent_span_id.hex()) == (TRACE, CALLER)
    assert asked.kind == asked.SPAN_KIND_SERVER
    assert attributes(asked) == {
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
    assert [attributes(one)["stopwise.round"] for one in reports] == [opened["id"]] * 2
    assert not reports[0].parent_span_id  # nobody called it within a trace

    (whole,) = collector.named("stopwise.round")
    assert (whole.trace_id, whole.parent_span_id) == (asked.trace_id, asked.span_id)
    assert whole.start_time_unix_nano == asked.start_time_unix_nano
    assert whole.end_time_unix_nano == reports[0].end_time_unix_nano
    assert [link.span_id for link in whole.links] == [reports[0].span_id]
    described = {name: value for name, value in attributes(asked).items() if "stopwise" in name}
    assert attributes(whole) == described

    others = [span.name for span in collector.spans() if span not in (asked, whole, *reports)]
    assert others == ["POST /v1/cascades", "GET /v1/cascades/{name}"]  # no probes


def test_batches_and_stages_that_reveal(tmp_path: Path, collector: Collector) -> None:
    with traced(tmp_path, collector) as running:
        for spec in (SPEC, REVEALING):
            running.post("/v1/cascades", spec)
        batch = running.post(f"{ROUNDS}:batch", {"contexts": [[0.1, 0.2]] * 3}).json()["rounds"]
        for one in batch[:2]:
            running.post(f"{ROUNDS}/{one['id']}/outputs", {"outputs": [1], "final": True})
        one = running.post(STAGED, {"context": [0.3]}).json()
        arms = ["rule", "model", "person"]
        while (arm := one.get("next")) is not None:
            more = {} if arm == 2 else {"revealed": [0.5]}
            body = {"outputs": {arms[arm]: arm % 2}, **more}
            one = running.post(f"{STAGED}/{one['id']}/outputs", body).json()
    (asked,) = collector.named(OPEN + ":batch")
    rounds = collector.named("stopwise.round")
    ids = [attributes(span)["stopwise.round"] for span in rounds]
    assert sorted(ids) == sorted([batch[0]["id"], batch[1]["id"], one["id"]])
    assert {span.parent_span_id for span in rounds[:2]} == {asked.span_id}
    assert attributes(rounds[2])["stopwise.cascade"] == "stages"
    assert attributes(rounds[2])["stopwise.stop"] == one["stop"]


def test_strangers_make_no_spans_and_a_defect_is_an_error(
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


def test_a_collector_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    gone = Collector()
    gone.server.server_close()
    with traced(tmp_path, gone, stop_timeout=1.0) as running:
        assert running.post("/v1/cascades", SPEC).status_code == 201
        assert running.post(ROUNDS, CONTEXT).status_code == 201


def test_without_traces_nothing_of_opentelemetry_is_imported() -> None:
    code = "import sys, stopwise.service.http.app; print('opentelemetry' in sys.modules)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
