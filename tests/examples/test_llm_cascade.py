"""The example of the language models: real HTTP, real failures, a log that can be read."""

import asyncio
import contextlib
import dataclasses
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stopwise as sw
from examples import llm_cascade

Run = tuple[dict[str, float], Path, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("llm") / "rounds.jsonl"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        numbers = llm_cascade.main(rounds=600, log=path)
    return numbers, path, printed.getvalue()


@pytest.fixture
def port() -> Iterator[int]:
    server = llm_cascade.FakeServer((llm_cascade.HOST, 0), llm_cascade.FakeModels)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_it_saves_much_and_differs_little(run: Run) -> None:
    numbers, _, _ = run
    assert numbers["saved"] > 0.35
    assert numbers["differ"] < 0.08
    assert numbers["wrong"] - numbers["wrong_deepest"] < 0.08


def test_failures_happen_and_are_few(run: Run) -> None:
    numbers, _, _ = run
    assert numbers["errors"] > 0
    assert numbers["timeouts"] > 0
    assert numbers["errors"] + numbers["timeouts"] < 0.2 * numbers["rounds"]


def test_every_round_is_in_the_log(run: Run) -> None:
    numbers, path, _ = run
    log = sw.Log(path)
    assert log.arms == llm_cascade.CASCADE.names
    assert log.context == ("digits", "terms")
    assert log.has_costs
    (chunk,) = log.chunks()
    assert chunk.rounds.n == numbers["rounds"] == numbers["logged"]
    assert chunk.rounds.failed.sum() == numbers["errors"] + numbers["timeouts"]


def question(model: str, low: float, high: float) -> str:
    """Find a question for which chance falls between two values."""
    numbers = range(1, 1_000_000)
    texts = (f"What is {n} + 1? Answer with the number only." for n in numbers)
    return next(text for text in texts if low < llm_cascade.chance(model, text) < high)


def asked(port: int, text: str, late: str | None = None) -> sw.Round:
    """Ask all models; of those that are not to be late, wait for the answer."""
    stages = [llm_cascade.stage(port, model) for model in llm_cascade.CASCADE.names]
    stages = [s if s.name == late else dataclasses.replace(s, timeout=60) for s in stages]
    runner = sw.Runner(
        sw.FixedDepth(llm_cascade.CASCADE),
        stages,
        context=llm_cascade.context,
        canonical=llm_cascade.canonical,
    )
    return asyncio.run(runner.arun(text))


def test_answers_in_different_words_agree_and_calls_cost_by_their_tokens(port: int) -> None:
    text = "What is 2 + 3? Answer with the number only."
    done = asked(port, text)
    assert done.outputs == ("5", "5", "5")
    said = [answer["choices"][0]["message"]["content"] for answer in done.answers]
    assert len(set(said)) == 3
    used: list[Any] = [answer["usage"]["total_tokens"] for answer in done.answers]
    prices = llm_cascade.PRICES.values()
    wanted = tuple(n * price / 1e6 for n, price in zip(used, prices, strict=True))
    assert done.costs == pytest.approx(wanted)


def test_an_overloaded_model_is_an_error(port: int) -> None:
    done = asked(port, question("small", 0.500, 0.505))
    assert done.failure == sw.Failure(0, "error", "RuntimeError: the model is overloaded")
    assert done.answer is None


def test_a_model_that_takes_too_long_is_a_timeout(port: int) -> None:
    done = asked(port, question("medium", 0.750, 0.754), late="medium")
    assert done.failure == sw.Failure(1, "timeout", "no answer within 1 s")
    assert len(done.outputs) == 1


def test_it_prints_what_was_saved(run: Run) -> None:
    numbers, _, printed = run
    assert "always large" in printed
    assert f"saved {numbers['saved']:.0%}" in printed
