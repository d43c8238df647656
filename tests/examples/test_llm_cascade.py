"""The language model example: HTTP requests, failures, and its log."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import stopwise as sw
from examples import llm_cascade


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = llm_cascade.FakeServer((llm_cascade.HOST, 0), llm_cascade.FakeModels)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_example_saves_cost_and_logs_every_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rounds.jsonl"
    numbers = llm_cascade.main(rounds=250, log=path)
    assert f"saved {numbers['saved']:.0%}" in capsys.readouterr().out
    assert numbers["saved"] > 0.15
    assert numbers["differ"] < 0.08
    assert numbers["wrong"] - numbers["wrong_large"] < 0.08
    assert numbers["errors"] > 0
    assert numbers["timeouts"] > 0
    log = sw.Log(path)
    assert (log.arms, log.context) == (llm_cascade.CASCADE.names, ("digits", "terms"))
    assert log.has_costs
    (chunk,) = log.chunks()
    assert chunk.rounds.n == numbers["rounds"] == numbers["logged"]
    assert chunk.rounds.failed.sum() == numbers["errors"] + numbers["timeouts"]


def question(model: str, low: float, high: float) -> str:
    """Return a question whose pseudo-random number is between two values."""
    texts = (f"What is {n} + 1? Answer with the number only." for n in range(1, 1_000_000))
    return next(text for text in texts if low < llm_cascade.uniform(model, text) < high)


def ask(port: int, text: str, with_timeout: str | None = None) -> sw.Round:
    """Ask all models; only one keeps its short timeout."""
    stages = [llm_cascade.stage(port, model) for model in llm_cascade.CASCADE.names]
    stages = [s if s.name == with_timeout else dataclasses.replace(s, timeout=60) for s in stages]
    policy = sw.FixedDepth(llm_cascade.CASCADE)
    functions = {"context": llm_cascade.context, "canonical": llm_cascade.canonical}
    return asyncio.run(sw.Runner(policy, stages, **functions).arun(text))


def test_differently_formatted_answers_agree_and_calls_cost_by_tokens(port: int) -> None:
    done = ask(port, "What is 2 + 3? Answer with the number only.")
    assert done.outputs == ("5", "5", "5")
    answers = [answer["choices"][0]["message"]["content"] for answer in done.answers]
    assert len(set(answers)) == 3
    tokens = [answer["usage"]["total_tokens"] for answer in done.answers]
    prices = llm_cascade.PRICES.values()
    expected = [n * price / 1e6 for n, price in zip(tokens, prices, strict=True)]
    assert done.costs == pytest.approx(expected)


def test_failed_and_slow_calls_end_the_round(port: int) -> None:
    done = ask(port, question("small", 0.500, 0.505))
    assert done.failure == sw.Failure(0, "error", "RuntimeError: the model is overloaded")
    assert done.answer is None
    done = ask(port, question("medium", 0.750, 0.754), with_timeout="medium")
    assert done.failure == sw.Failure(1, "timeout", "no answer within 1 s")
    assert len(done.outputs) == 1
