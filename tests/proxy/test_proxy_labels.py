"""Labels of the proxy's rounds are compared with the answers of the round."""

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from examples.proxy_upstreams import Upstream
from stopwise.cli.main import app
from stopwise.service.domain.outputs import fingerprint
from tests.proxy.proxy_harness import (
    MESSAGES,
    TOOL,
    ProxyProcess,
    RunningProxy,
    running_proxy,
    stage,
    write_config,
)

POLICY: Any = {"kind": "uss-laplace", "labels": 1000, "forced_rounds": 100_000}  # runs every stage
SAME = "def same(a, b):\n    return sorted(a.lower().split()) == sorted(b.lower().split())\n"
NEAR = "def same(a, b):\n    return abs(float(a) - float(b)) <= 1\n"
NUMBERS = itertools.count()  # modules of two tests must not have the same name
LONG = "once upon a time " * 400  # longer than a stored output


class FixedUpstreams:
    """Upstreams with fixed answers, which a test may replace."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.servers = [Upstream(self._classify(k)) for k in range(len(answers))]

    def _classify(self, k: int) -> Callable[[str], tuple[str, float]]:
        return lambda text: (self.answers[k], -0.1)

    def stages(self) -> list[dict[str, Any]]:
        return [stage(f"m{k}", server, 0.01 * 10**k) for k, server in enumerate(self.servers)]

    def close(self) -> None:
        for server in self.servers:
            server.close()


@pytest.fixture
def upstreams() -> Iterator[FixedUpstreams]:
    upstreams = FixedUpstreams("billing", "account")
    yield upstreams
    upstreams.close()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, str]]:
    """Return a function that writes a module and returns the value for ``compare``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> dict[str, str]:
        name = f"same_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        return {"python": f"{name}:same"}

    return write


def ask(proxy: RunningProxy, **more: Any) -> str:
    """Send a request with OpenAI's client; return the id of the round."""
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0) as client:
        while True:  # on a busy machine, a slow commit leaves the answer without a round
            raw = client.chat.completions.with_raw_response.create(
                model="tickets", messages=MESSAGES, **more
            )
            assert raw.parse().choices
            if "x-stopwise-round" in raw.headers:
                return str(raw.headers["x-stopwise-round"])


def label(proxy: RunningProxy, name: str, label: Any) -> httpx.Response:
    return proxy.post(f"/v1/cascades/tickets/rounds/{name}/label", {"label": label})


def unmatched(proxy: RunningProxy) -> int:
    return proxy.service.state.cascades["tickets"].counts.unmatched_labels


def right_arms(proxy: RunningProxy, name: str) -> list[bool]:
    """Return which arms are right by the newest label of a round, from the log."""
    cascade = proxy.service.state.cascades["tickets"]
    number = cascade.ledger.number(name)

    async def read() -> list[bool]:
        _, reported = await proxy.service.round_events(cascade, number)
        assert reported is not None
        return [fingerprint(output) == cascade.ledger.labels[number] for output in reported.outputs]

    return proxy.run(read())


@pytest.mark.parametrize(
    ("compare", "answers", "right", "wrong"),
    [
        ("text", ["billing", "account"], ["Billing.", " **BILLING** ", "billing"], ["outage"]),
        (
            "choice:account|billing|outage",
            ["billing", "account"],
            ["Billing.", "It is billing.", {"role": "assistant", "content": "Billing!"}],
            ["outage", "neither"],
        ),
        ("number", ["It is 1,200.", "7"], ["1200", 1200, 1200.0, "$1200.00"], [12, "seven"]),
        (
            "json",
            ['{"a": 1, "b": "x"}', "{}"],
            ['{"b":"x","a":1.0}', {"b": "x", "a": 1}],
            [{"a": 1}, 1],
        ),
        (
            "json:item.price",
            ['{"item": {"price": 3.0}}', '{"item": {"price": 4}}'],
            [3, 3.0, "3", {"item": {"price": 3}}, '{"item": {"price": 3}}'],
            [5, {"item": {"price": 5}}],
        ),
        ("json:name", ['{"name": "New York."}', "{}"], ["new york", '"New  York"'], ["Rome"]),
        ("code", ["if x :\n    y=1", "pass"], ["```\nif x:\n\n  y = 1\n```"], ["y = 1"]),
        ("text", [LONG, "no"], [LONG.upper()], [LONG + "end"]),
    ],
)
def test_labels_are_compared_like_answers(
    upstreams: FixedUpstreams,
    tmp_path: Path,
    compare: str,
    answers: list[str],
    right: Any,
    wrong: Any,
) -> None:
    upstreams.answers = answers
    options: Any = {"mode": "on", "policy": POLICY, "compare": compare}
    with running_proxy(tmp_path, upstreams.stages(), **options) as proxy:
        for text in right:
            name = ask(proxy)
            assert label(proxy, name, text).status_code == 200
            assert right_arms(proxy, name) == [True, False], text
        for text in wrong:
            name = ask(proxy)
            assert label(proxy, name, text).status_code == 200
            assert right_arms(proxy, name) == [False, False], text


def test_a_displayed_output_is_a_valid_label(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    # The dashboard offers outputs as the service shows them; long ones are hashes.
    for k, compare in enumerate(("text", "number", "json", module(SAME))):
        folder = tmp_path / str(k)
        folder.mkdir()
        upstreams.answers = [LONG, "7"]
        with running_proxy(
            folder, upstreams.stages(), mode="on", policy=POLICY, compare=compare
        ) as proxy:
            for arm in ("m0", "m1"):
                ask(proxy)
                (wanted, *_) = proxy.get("/v1/cascades/tickets/label-requests").json()["rounds"]
                seen = proxy.get(f"/v1/cascades/tickets/rounds/{wanted['id']}").json()
                assert seen["outputs"] == wanted["outputs"]
                assert label(proxy, wanted["id"], wanted["outputs"][arm]).status_code == 200
                assert unmatched(proxy) == 0


def test_tool_calls_are_labelled_by_tool_calls(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    def call(topic: str) -> dict[str, Any]:
        arguments = json.dumps({"topic": topic}, indent=1)
        return {"tool_calls": [{"function": {"name": "sort", "arguments": arguments}}]}

    for k, compare in enumerate(("text", module(SAME))):
        (tmp_path / str(k)).mkdir()
        options: Any = {"mode": "on", "policy": POLICY, "compare": compare}
        with running_proxy(tmp_path / str(k), upstreams.stages(), **options) as proxy:
            assert label(proxy, ask(proxy, tools=[TOOL]), call("billing")).status_code == 200
            assert unmatched(proxy) == 0
            assert label(proxy, ask(proxy, tools=[TOOL]), call("outage")).status_code == 200
            assert unmatched(proxy) == 1
            assert label(proxy, ask(proxy, tools=[TOOL]), "sort").status_code == 200
            assert unmatched(proxy) == 2


def test_a_function_compares_labels_with_the_answers_of_that_round(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    options: Any = {"mode": "on", "policy": POLICY, "compare": module(SAME)}
    with running_proxy(tmp_path, upstreams.stages(), **options) as proxy:
        upstreams.answers = ["red green", "blue"]
        first = ask(proxy)
        upstreams.answers = ["blue", "Green red"]
        second = ask(proxy)
        for name, right in ((first, [True, False]), (second, [False, True])):
            answer = label(proxy, name, "GREEN RED")
            assert (answer.status_code, "warning" in answer.json()) == (200, False)
            assert right_arms(proxy, name) == right
        again = label(proxy, first, "red Green")  # the same class: a repeat
        assert (again.status_code, again.json()["repeated"]) == (200, True)
        assert label(proxy, first, "blue").status_code == 409  # another class
        name = ask(proxy)
        assert label(proxy, name, "yellow").status_code == 200
        assert right_arms(proxy, name) == [False, False]


def test_labels_by_stage_are_not_compared(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    options: Any = {"mode": "on", "policy": POLICY, "compare": module(SAME)}
    with running_proxy(tmp_path, upstreams.stages(), **options) as proxy:
        upstreams.answers = ["in Rome", "in Italy"]
        name = ask(proxy)
        where = f"/v1/cascades/tickets/rounds/{name}/label"
        assert proxy.post(where, {"right": {"m0": True, "m1": True}}).status_code == 200
        assert proxy.post(where, {"right": {"m0": True, "m1": True}}).json()["repeated"]
        assert proxy.post(where, {"right": {"m0": True, "m1": False}}).status_code == 409
        policy = proxy.service.state.cascades["tickets"].policy
        assert policy.labels.received == 1  # pyright: ignore[reportAttributeAccessIssue] (of this kind of policy)


def test_labels_of_old_rounds_are_compared_after_kill_9(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    file = write_config(
        tmp_path,
        upstreams.stages(),
        mode="on",
        policy=POLICY,
        compare=module(SAME),
        service_snapshot_every=20,
    )
    upstreams.answers = [f"{LONG} red", f"{LONG} blue"]
    names: list[str] = []
    process = ProxyProcess(file)
    for _ in range(3):
        url = process.start()
        process.wait_until_ready()
        with httpx.Client(base_url=url, timeout=30) as client:
            for _ in range(15):
                body = {"model": "tickets", "messages": MESSAGES}
                head = client.post("/v1/chat/completions", json=body).headers
                names += [head["x-stopwise-round"]] if "x-stopwise-round" in head else []
        process.end()  # kill -9
    url = process.start()
    process.wait_until_ready()
    with httpx.Client(base_url=url, timeout=30) as client:
        for name in names:
            body = {"label": f"BLUE {LONG}"}
            answer = client.post(f"/v1/cascades/tickets/rounds/{name}/label", json=body)
            assert answer.status_code == 200, answer.text
            assert "warning" not in answer.json()
        assert client.get("/v1/cascades/tickets").json()["labelled"] == len(names)
    process.end()
    verified = CliRunner().invoke(app, ["store", "verify", str(tmp_path / "proxy.db")])
    assert "The log is complete" in verified.output


def test_answers_are_stored_only_if_labels_need_them(
    upstreams: FixedUpstreams, tmp_path: Path, module: Any
) -> None:
    compare = module(SAME)
    sizes: list[int] = []
    for k, policy in enumerate((POLICY, {"kind": "uss-anchor", "forced_rounds": 1000})):
        folder = tmp_path / str(k)
        folder.mkdir()
        with running_proxy(
            folder, upstreams.stages(), mode="on", policy=policy, compare=compare
        ) as proxy:
            name = ask(proxy)
            cascade = proxy.service.state.cascades["tickets"]

            async def read(
                proxy: RunningProxy = proxy, cascade: Any = cascade, name: str = name
            ) -> int:
                number = cascade.ledger.number(name)
                _, reported = await proxy.service.round_events(cascade, number)
                assert reported is not None
                return len(reported.answers)

            sizes.append(proxy.run(read()))
            assert label(proxy, name, "billing").status_code == (200 if k == 0 else 409)
    assert sizes[0] > 0 == sizes[1]  # this policy does not learn from labels


def test_a_label_is_compared_with_every_answer_of_a_class(tmp_path: Path, module: Any) -> None:
    upstreams = FixedUpstreams("1", "2", "9")  # 1 is like 2, which is like 3; 1 is not like 3
    with running_proxy(
        tmp_path, upstreams.stages(), mode="on", policy=POLICY, compare=module(NEAR)
    ) as proxy:
        name = ask(proxy)
        assert label(proxy, name, "3").status_code == 200
        assert right_arms(proxy, name) == [True, True, False]  # they agree: right together
        name = ask(proxy)
        assert label(proxy, name, 8.5).status_code == 200  # a number is a text
        assert right_arms(proxy, name) == [False, False, True]
        refused = label(proxy, ask(proxy), "eight")  # the function raises
        assert refused.status_code == 409
        assert "comparing the label with an answer raised" in refused.json()["error"]["message"]
    upstreams.close()


def test_ten_labels_in_a_row_without_a_match_are_reported(
    upstreams: FixedUpstreams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    options: Any = {"mode": "on", "policy": POLICY, "compare": "choice:account|billing|outage"}
    more = {"service_log_level": "warning"}

    def lines() -> list[tuple[str, int]]:
        records = [vars(r) for r in caplog.records if r.message == "labels match no arm"]
        assert "Invoices" not in str(records)
        return [(record["cascade"], record["labels"]) for record in records]

    def notice(proxy: RunningProxy) -> bool:
        pages = ("/cascades/tickets", "/cascades/tickets/labels")
        shown = {"Labels match no arm" in proxy.get(page).text for page in pages}
        assert len(shown) == 1
        return shown.pop()

    with running_proxy(tmp_path, upstreams.stages(), **options, **more) as proxy:
        for k in range(9):
            answer = label(proxy, ask(proxy), "Invoices")
            assert "warning" not in answer.json(), k
        assert (lines(), notice(proxy)) == ([], False)
    with running_proxy(
        tmp_path, upstreams.stages(), **options, **more
    ) as proxy:  # the count survives a restart
        assert unmatched(proxy) == 9  # the count survives a restart
        answer = label(proxy, ask(proxy), "Invoices")
        assert answer.status_code == 200
        assert "the last 10 labels match no arm" in answer.json()["warning"]
        assert '"Invoices"' in answer.json()["warning"]
        assert 'm0 answered "billing"' in answer.json()["warning"]
        assert lines() == [("tickets", 10)]
        assert notice(proxy)
        assert "the last 11 labels" in label(proxy, ask(proxy), "Invoices").json()["warning"]
        assert len(lines()) == 1  # one line, however many follow
        assert "warning" not in label(proxy, ask(proxy), "Billing.").json()
        assert not notice(proxy)
        assert unmatched(proxy) == 0
