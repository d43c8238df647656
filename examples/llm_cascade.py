"""Three language models behind an OpenAI-style API, the smallest first.

The models are a stub: a local server in this file answers ``POST /v1/chat/completions`` in the same
format, including token usage. Small sums are easy for every model, long ones only for the large
model. Some calls fail or time out. Everything else is as in production:

- async stages that make HTTP requests, with eight rounds in parallel;
- the actual cost of a call, from the tokens in the reply and the price of the model;
- answers in different formats ("**579**.", "579"), compared by `sw.normalised_text`;
- a timeout, failures that end a round and are recorded, and a log in JSON lines.

To use real models, replace `post` with your client and set your prices in PRICES.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import stopwise as sw

HOST, PATH = "127.0.0.1", "/v1/chat/completions"
PRICES = {"small": 1.0, "medium": 6.0, "large": 20.0}  # dollars per million tokens
ERROR = 0.001  # dollars per wrong answer
TOKENS = 20  # of a typical call, for the expected cost of an arm
TIMEOUT = 1.0  # seconds

# Costs are in units of one error.
CASCADE = sw.Cascade(
    costs=[TOKENS * price / 1e6 / ERROR for price in PRICES.values()], names=list(PRICES)
)

# ------------------------------------------------------------------------------------ the client


async def post(port: int, model: str, question: str) -> dict[str, Any]:
    """Send a chat completion request and return the reply."""
    request = {"model": model, "messages": [{"role": "user", "content": question}]}
    body = json.dumps(request).encode()
    head = (
        f"POST {PATH} HTTP/1.0\r\nHost: {HOST}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(head.encode() + body)
        status, _, reply = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if b" 200 " not in status.splitlines()[0]:
        raise RuntimeError(f"{json.loads(reply)['error']['message']}")
    return json.loads(reply)


def stage(port: int, model: str) -> sw.Stage:
    """Return a model as a stage of the cascade."""

    return sw.Stage(
        partial(post, port, model),
        name=model,
        cost=lambda reply: reply["usage"]["total_tokens"] * PRICES[model] / 1e6,
        timeout=TIMEOUT,
    )


def canonical(reply: dict[str, Any]) -> str:
    return sw.normalised_text(reply["choices"][0]["message"]["content"])


# --------------------------------------------------------------------------------- the questions


def questions(n: int, seed: int) -> list[str]:
    """Return sums of two or three numbers of one to six digits."""
    random = np.random.default_rng(seed)
    sums: list[str] = []
    for _ in range(n):
        largest = 10 ** int(random.integers(1, 7))
        terms = random.integers(largest // 10, largest, size=int(random.integers(2, 4)))
        sums.append(f"What is {' + '.join(map(str, terms))}? Answer with the number only.")
    return sums


def terms_of(question: str) -> list[int]:
    return [int(word.rstrip("?")) for word in question.split() if word[0].isdigit()]


def context(question: str) -> list[float]:
    """Return the length and the number of the terms, which are free to compute."""
    terms = terms_of(question)
    return [len(str(max(terms))) / 3 - 1, len(terms) - 2]


# ------------------------------------------------------------------------------- the fake server


class FakeModels(BaseHTTPRequestHandler):
    """Answers deterministically as three models of increasing skill."""

    SKILL: ClassVar[dict[str, float]] = {"small": 3.5, "medium": 5.5, "large": 9.0}
    STYLE: ClassVar[dict[str, str]] = {"small": "{}", "medium": "**{}**.", "large": " {}. "}

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, question = request["model"], request["messages"][-1]["content"]
        u = uniform(model, question)
        if 0.500 < u < 0.505:
            self.reply(503, {"error": {"message": "the model is overloaded"}})
            return
        if 0.750 < u < 0.754:
            time.sleep(2 * TIMEOUT)
        terms = terms_of(question)
        difficulty = len(str(max(terms))) + len(terms) - 2
        right = u < 1 / (1 + np.exp(4 * (difficulty - self.SKILL[model])))
        number = sum(terms) if right else sum(terms) + 1 + int(9999 * u)
        content = self.STYLE[model].format(number)
        usage = {"prompt_tokens": len(question.split()) + 6, "completion_tokens": 3}
        self.reply(
            200,
            {
                "object": "chat.completion",
                "model": model,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
                "usage": {**usage, "total_tokens": sum(usage.values())},
            },
        )

    def reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have disconnected
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name it has in the base class)
        """Do not log requests."""


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # Python's default of 5 would reject some parallel connections


def uniform(model: str, question: str) -> float:
    """Return a pseudo-random number in [0, 1) determined by model and question."""
    digest = hashlib.sha256(f"{model} {question}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


# -------------------------------------------------------------------------------------- the runs


async def play(runner: sw.Runner, cases: list[str]) -> dict[str, sw.Round]:
    """Run all questions, several in parallel; return their rounds by question."""
    rounds = runner.arun_many(cases, concurrency=8, id_of=lambda question: question)
    return {done.id: done async for done in rounds}


def main(rounds: int = 1000, log: Path | None = None, *, quiet: bool = False) -> dict[str, float]:
    """Run the cascade against the fake server; return costs and error rates."""
    write: Callable[..., None] = (lambda *_: None) if quiet else print
    cases = list(dict.fromkeys(questions(rounds, seed=0)))  # without duplicates
    server = FakeServer((HOST, 0), FakeModels)  # port 0: any free port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        stages = [stage(server.server_port, model) for model in CASCADE.names]
        policy = sw.USSLaplace(CASCADE, context_dim=2)
        with tempfile.TemporaryDirectory() as folder:
            path = log or Path(folder, "rounds.jsonl")
            with sw.LogWriter(path, CASCADE.names, ["digits", "terms"], costs=True) as writer:
                runner = sw.Runner(policy, stages, context=context, canonical=canonical, log=writer)
                played = asyncio.run(play(runner, cases))
            logged = len(path.read_text(encoding="utf-8").splitlines())
        # the same questions at full depth, for comparison
        always = sw.Runner(sw.FixedDepth(CASCADE), stages, context=context, canonical=canonical)
        deepest = asyncio.run(play(always, cases))
    finally:
        server.shutdown()
        server.server_close()
    return report(played, deepest, logged, write)


def report(
    played: dict[str, sw.Round],
    deepest: dict[str, sw.Round],
    logged: int,
    write: Callable[..., None],
) -> dict[str, float]:
    """Print and return the results."""

    last = CASCADE.n_arms - 1
    reached = {q: done for q, done in deepest.items() if done.stop == last}  # large answered
    large_call = np.mean([done.costs[last] for done in reached.values() if done.costs])
    spent = sum(sum(done.costs or ()) for done in played.values())
    spent_large = float(large_call) * len(played)  # what the large model alone would cost

    def wrong(rounds: dict[str, sw.Round]) -> float:
        right = {q: str(sum(terms_of(q))) for q in rounds}
        answered = [(q, done.outputs[-1]) for q, done in rounds.items() if done.outputs]
        return sum(output != right[q] for q, output in answered) / len(answered)

    both = [q for q in played if played[q].outputs and q in reached]
    differ = sum(played[q].outputs[-1] != deepest[q].outputs[-1] for q in both) / len(both)
    failures = [done.failure for done in played.values() if done.failure is not None]

    write(f"{CASCADE}, in units of one error (${ERROR}); below in dollars\n")
    write(f"{'':<14}{'spent':>9}{'wrong':>7}{'total':>9}   answered by {'/'.join(PRICES)}")
    for name, rounds, cost in (("Stopwise", played, spent), ("large alone", reached, spent_large)):
        depth = np.array([done.stop for done in rounds.values()])
        shares = "  ".join(f"{np.mean(depth == arm):4.0%}" for arm in range(CASCADE.n_arms))
        loss = cost + wrong(rounds) * len(played) * ERROR
        write(f"{name:<14}{cost:>9.3f}{wrong(rounds):>7.1%}{loss:>9.3f}   {shares}")
    saved = 1 - spent / spent_large
    write(f"\nsaved {saved:.0%}; {differ:.1%} of the answers differ from the large model's")
    write(
        f"{len(failures)} of {len(played)} rounds ended with a simulated failure; {logged} logged"
    )
    for kind in ("error", "timeout"):
        for failure in [f for f in failures if f.kind == kind][:1]:
            write(f"  for example, {CASCADE.names[failure.arm]}: {failure.message}")
    return {
        "saved": saved,
        "differ": differ,
        "wrong": wrong(played),
        "wrong_large": wrong(reached),
        "errors": sum(f.kind == "error" for f in failures),
        "timeouts": sum(f.kind == "timeout" for f in failures),
        "unanswered": sum(done.stop is None for done in played.values()),
        "rounds": len(played),
        "logged": logged,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=1000, metavar="N", help="number of questions (default: 1000)"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE.jsonl", help="file for the log; must not exist"
    )
    options = parser.parse_args()
    if options.log is not None and options.log.exists():
        parser.error(f"--log: {options.log} exists; delete it or choose another file")
    main(options.rounds, options.log)
