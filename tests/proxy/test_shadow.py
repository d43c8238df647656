"""Shadow mode: answers are unchanged, the policy learns from every stage, the report estimates."""

import json
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from typer.testing import CliRunner

import stopwise as sw
from examples.proxy_upstreams import Upstream
from examples.text_cascade import tickets
from stopwise.cli.main import app
from stopwise.proxy.config import CascadeConfig, StageConfig
from stopwise.records import RecordedRounds
from tests.proxy.proxy_harness import (
    MESSAGES,
    ScriptedUpstream,
    running_proxy,
    stage,
    stages,
    write_config,
)


def test_answers_are_unchanged_and_every_stage_is_learned_from(
    models: list[Upstream], tmp_path: Path
) -> None:
    more = {"compare": "choice:account|billing|outage", "sample": 1.0, "answer": "words"}
    with running_proxy(tmp_path, stages(models), **more) as proxy:
        for request in (
            {},
            {"stream": True, "stream_options": {"include_usage": True}},
            {"stream": True, "unknown": {"kept": [1, 2.50]}},
        ):
            body = {"messages": MESSAGES, **request}
            direct = httpx.post(
                f"{models[1].url}/chat/completions", json={"model": "words", **body}
            )
            through = proxy.chat(body)
            assert through.content == direct.content
            assert through.headers["content-type"] == direct.headers["content-type"]
            assert models[1].bodies[-1] == models[1].bodies[-2]  # forwarded unchanged
        proxy.wait_for("shadowed", 3)
        (cascade, *_) = proxy.get("/v1/cascades").json()["cascades"]
        assert (cascade["learned"], cascade["stops"]) == (3, [0, 0, 3])
        latest = proxy.service.state.cascades["tickets"].recent[-1]
        round_ = proxy.get(f"/v1/cascades/tickets/rounds/{latest.id}").json()
        assert round_["outputs"] == dict.fromkeys(("keywords", "words", "phrases"), "billing")


@pytest.mark.parametrize("stream", [False, True])
def test_an_invalid_header_of_an_upstream_does_not_fail_the_answer(
    scripted: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    for name, status, body in ("good", 200, b"data: [DONE]\n\n"), ("bad", 429, b"wait"):
        scripted.replies[name] = status, body, "text/event-stream; x=\x01"
    both = {name: [stage("first", scripted, 0.1)] * 2 for name in scripted.replies}
    for name, rows in both.items():
        both[name] = [{**row, "name": f"s{k}", "model": name} for k, row in enumerate(rows)]
    with running_proxy(tmp_path, both) as proxy:
        for name, (status, body, _) in scripted.replies.items():
            answer = proxy.chat({"model": name, "stream": stream})
            assert (answer.status_code, answer.content) == (status, body)
            assert "\x01" not in answer.headers["content-type"]


def test_the_budget_and_the_sample_are_respected(models: list[Upstream], tmp_path: Path) -> None:
    with running_proxy(tmp_path, stages(models), sample=1.0, budget=0.2) as proxy:
        calls = models[0].calls
        for _ in range(5):
            proxy.chat()
        proxy.wait_for("over budget", 3)
        proxy.wait_for("shadowed", 2)
        assert proxy.event_count("shadowed") == 2  # 0.085 each, without the stage that answers
        assert models[0].calls == calls + 2
    with running_proxy(tmp_path, stages(models), sample=1.0, budget=0.2) as proxy:  # the same day
        proxy.chat()
        proxy.wait_for("over budget", 1)
        assert models[0].calls == calls + 2
    (tmp_path / "none").mkdir()
    with running_proxy(tmp_path / "none", stages(models), sample=0.0) as proxy:
        proxy.chat()
        assert proxy.app._shadow.held == 0


def test_the_report_excludes_rounds_in_which_a_stage_failed(
    models: list[Upstream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = {"name": "small", "url": "http://127.0.0.1:9/v1", "model": "m", "cost": 0.01}
    cascade = [dead, stages(models)[2]]
    done = CliRunner().invoke(app, ["proxy", "report", str(write_config(tmp_path, cascade))])
    assert "start the proxy first" in str(done.exception)
    with running_proxy(tmp_path, cascade, sample=1.0) as proxy:
        for _ in range(3):
            proxy.chat()
        proxy.wait_for("shadow failed", 3)
        (line,) = [record for record in caplog.records if record.message == "shadow failed"]
        assert "cannot reach small" in vars(line)["reason"]
        assert "3 more are excluded" in proxy.get("/cascades/tickets/shadow").text
    renamed = tmp_path / "proxy.toml"
    renamed.write_text(renamed.read_text().replace('name = "tickets"', 'name = "other"'))
    out = str(tmp_path / "report")
    done = CliRunner().invoke(app, ["proxy", "report", str(renamed), "--out", out])
    assert "other: 0 rounds in shadow mode.\n  Estimates need 100 rounds." in done.output


def test_the_report_estimates_saving_and_changes(models: list[Upstream], tmp_path: Path) -> None:
    compare = "choice:account|billing|outage"
    with (
        running_proxy(tmp_path, stages(models), sample=1.0, compare=compare) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client,
    ):
        for ticket in tickets(160, seed=3):
            message: list = [{"role": "user", "content": ticket.text}]
            client.chat.completions.create(model="tickets", messages=message)
        proxy.wait_for("shadowed", 160)
        assert 'href="/cascades/tickets/shadow"' in proxy.get("/cascades/tickets").text
        page = proxy.get("/cascades/tickets/shadow")
        assert "Estimated from 160 rounds in shadow mode" in page.text
        assert proxy.get("/cascades/nothing/shadow").status_code == 404
    verified = CliRunner().invoke(app, ["store", "verify", str(tmp_path / "proxy.db")])
    assert "The log is complete" in verified.output  # recomputes every decision
    with_keys = [{**stage, "key_env": "NOT_SET_WHERE_REPORTS_ARE_READ"} for stage in stages(models)]
    file = write_config(tmp_path, with_keys, sample=1.0, compare=compare)
    out = tmp_path / "report"
    done = CliRunner().invoke(app, ["proxy", "report", str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "tickets: 160 rounds in shadow mode." in done.output
    assert "Switching on would save" in done.output
    (report,) = json.loads((out / "report.json").read_text())
    assert sum(report["stops"].values()) == pytest.approx(1)
    log = sw.Log(out / "tickets-rounds.jsonl")
    assert next(log.chunks()).n == 160


COSTS = np.array([0.02, 0.1, 0.3])


Policy = sw.USSAnchor | sw.Thompson
Requests = list[tuple[list[float], list[bool]]]


def play(policy: Policy, context: list[float], outputs: list[bool]) -> sw.RoundInProgress:
    current = policy.start(context[:1])
    current.run_all()
    while (arm := current.next()) is not None:
        current.give(outputs[arm], context[arm + 1 : arm + 2])
    return current


def shadow_day(seed: int) -> tuple[sw.USSAnchor, Requests, Requests]:
    """Return a policy after a day in shadow mode, that day's requests and later ones."""
    random = np.random.default_rng(seed)
    policy = sw.USSAnchor(sw.Cascade(COSTS), context_dim=1, reveals=1, seed=seed)

    def request() -> tuple[list[float], list[bool]]:
        hard = random.uniform()
        wrong = random.random(3) < np.array([0.5, 0.2, 0.05]) * hard
        return [hard, hard + random.normal() / 4, hard], wrong.tolist()

    requests = [request() for _ in range(600)]
    for request_ in requests:
        play(policy, *request_).learn()
    return policy, requests, [request() for _ in range(4000)]


def stops_of(policy: Policy, requests: Requests) -> np.ndarray:
    contexts, outputs = map(np.array, zip(*requests, strict=True))
    pairs = [(outputs[:, i] != outputs[:, j]) for i, j in policy.cascade.pairs()]
    differ = np.array(pairs).T.astype(np.uint8)
    failed = np.zeros(len(requests), dtype=np.bool_)
    rounds = RecordedRounds(contexts, differ, np.full(len(requests), 3), failed)
    return policy.decide_many(rounds)


def test_a_batch_stops_where_single_rounds_stop() -> None:
    policy, requests, _ = shadow_day(0)
    stops = stops_of(policy, requests)
    assert stops.tolist() == [play(policy, *request).rule_stop for request in requests]
    assert len(set(stops)) == 3


def test_a_randomized_batch_stops_as_often_as_single_rounds() -> None:
    # Two samples of 2,000 differ by more than 5 % in a cell once in 1,000 runs; the seed is fixed.
    policy = sw.Thompson(sw.Cascade(COSTS), context_dim=1, reveals=1, seed=0, scale=3.0)
    _, requests, _ = shadow_day(0)
    for request in requests[:100]:
        play(policy, *request).learn()
    repeated = requests * 4
    stops = np.bincount(stops_of(policy, repeated), minlength=3) / len(repeated)
    single_stops = [play(policy, *request).rule_stop for request in repeated]
    single = np.bincount(single_stops, minlength=3) / len(repeated)
    assert np.abs(stops - single).max() < 0.05
    assert stops.min() > 0.05


def test_expected_costs_follow_from_the_prices() -> None:
    stage = StageConfig(name="a", url="http://x", model="m", price_in=1.0, price_out=4.0)
    cascade = CascadeConfig(name="c", stage=[stage, stage], tokens_in=1000, tokens_out=500)
    assert cascade.expected(0) == pytest.approx(0.003)
    assert stage.price((10, 1)) == pytest.approx(14e-6)
