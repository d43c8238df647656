"""Serve two small local models with OpenAI's API, to try `stopwise proxy`.

    python examples/proxy_upstreams.py

Both classify support tickets (see `text_cascade.py`): "small" on port 9001 is a logistic regression
on words, "large" on port 9002 a neural network on phrases. They answer `POST /v1/chat/completions`,
including streams, tools and schemas.
"""

import argparse
import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

try:
    from examples import text_cascade
except ImportError:  # run as a file
    import text_cascade  # pyright: ignore[reportMissingImports]

HOST = "127.0.0.1"
Classify = Callable[[str], tuple[str, float]]  # text → topic and its log-probability


class Upstream(ThreadingHTTPServer):
    """A server of one model with OpenAI's API, at ``url``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, classify: Classify, port: int = 0) -> None:
        super().__init__((HOST, port), Handler)
        self.classify = classify
        self.calls = 0
        self.bodies: list[dict[str, Any]] = []  # of all requests
        self.url = f"http://{HOST}:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Upstream

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        self.server.calls += 1
        self.server.bodies.append(request)
        self.answer(request)

    def answer(self, request: dict[str, Any]) -> None:
        answer = completion(request, self.server.classify)
        if not request.get("stream"):
            self.reply(200, json.dumps(answer).encode())
            return
        usage = (request.get("stream_options") or {}).get("include_usage")
        events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks(answer, usage)]
        self.reply(200, b"".join(events) + b"data: [DONE]\n\n", "text/event-stream")

    def reply(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def completion(request: dict[str, Any], classify: Classify) -> dict[str, Any]:
    """Return a tool call if the request has tools, JSON if it has a schema, else the topic."""
    text = str(request["messages"][-1]["content"])
    topic, logprob = classify(text)
    content: str | None = topic
    message: dict[str, Any] = {"role": "assistant"}
    if request.get("response_format", {}).get("type") == "json_schema":
        content = json.dumps({"topic": topic})
    if request.get("tools"):
        content, tool = None, request["tools"][0]["function"]["name"]
        function = {"name": tool, "arguments": json.dumps({"topic": topic})}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {
        "index": 0,
        "message": {**message, "content": content},
        "finish_reason": "tool_calls" if content is None else "stop",
        "logprobs": {"content": [{"token": topic, "logprob": logprob, "top_logprobs": []}]},
    }
    n_words = len(text.split())
    usage = {"prompt_tokens": n_words, "completion_tokens": 1, "total_tokens": n_words + 1}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "local"}
    return {**head, "choices": [choice], "usage": usage}


def chunks(answer: dict[str, Any], usage: bool | None) -> Iterator[dict[str, Any]]:
    """Yield the chunks of an answer's stream."""
    head = {**answer, "object": "chat.completion.chunk"}
    del head["choices"], head["usage"]
    (choice,) = answer["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    if "tool_calls" in message:
        (call,) = message["tool_calls"]
        arguments = call["function"]["arguments"]
        first = {**call, "index": 0, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
            for part in (arguments[:5], arguments[5:])
        ]
    else:
        content = message["content"]
        deltas += [{"content": content[:3]}, {"content": content[3:]}]
    for k, delta in enumerate(deltas):
        logprobs = choice["logprobs"] if k == 1 else None
        part = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": logprobs}
        yield {**head, "choices": [part]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage:
        yield {**head, "choices": [], "usage": answer["usage"]}


def classifiers(seed: int = 1000) -> list[Classify]:
    """Train and return a keyword rule, a linear model and a neural network."""
    stages = text_cascade.trained(text_cascade.tickets(1500, seed))

    def rule(text: str) -> tuple[str, float]:
        named = text_cascade.topics_named(text)
        return stages[0](text), math.log(0.9 if len(named) == 1 else 0.4)

    def model(stage: Any) -> Classify:
        def classify(text: str) -> tuple[str, float]:
            probabilities = stage.predict_proba([text])[0]
            best = int(probabilities.argmax())
            return str(stage.classes_[best]), math.log(max(float(probabilities[best]), 1e-9))

        return classify

    return [rule, model(stages[1]), model(stages[2])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    _, small, large = classifiers()
    servers = [Upstream(small, 9001), Upstream(large, 9002)]
    print(f"small: {servers[0].url}\nlarge: {servers[1].url}\nPress Ctrl-C to stop.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
