"""Chat completions: requests, answers and streams, as OpenAI's API has them."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from stopwise.errors import StopwiseError
from stopwise.service.refusals import Refusal

DONE = b"data: [DONE]\n\n"
MAX_ANSWER = 16_000_000  # bytes
OVERHEAD = 500  # bytes of memory that a field or an entry takes beside its value
Fields = dict[str, msgspec.Raw]
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode


class Reply(NamedTuple):
    """What an upstream replied instead of an answer, as it came."""

    status: int
    body: bytes
    media_type: str
    retry_after: str | None


class StageFailure(StopwiseError):
    """A stage gave no answer; ``status`` is what the caller gets if no other stage has one."""

    def __init__(self, message: str, status: int = 502, reply: Reply | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reply = reply


def too_large(what: str, most: int, option: str) -> StageFailure:
    """Return the failure of a stage that sends more than a limit allows.

    Examples
    --------
    >>> too_large("the answer", 16_000_000, "max_answer")
    StageFailure('the answer exceeds 16,000,000 bytes: to allow more, raise max_answer in [limits]')
    """
    words = f"{what} exceeds {most:,} bytes: to allow more, raise {option} in [limits]"
    return StageFailure(words)


class Chat:
    """A request; what the proxy does not know stays as it came, byte for byte.

    Examples
    --------
    >>> chat = Chat(b'{"model": "tickets", "messages": [], "seed": 1e0}')
    >>> chat.model, chat.sent("small", stream=False)
    ('tickets', b'{"model":"small","messages":[],"seed":1e0}')
    """

    def __init__(self, body: bytes) -> None:
        self.raw = body
        try:
            self.fields = _fields(body)
            self.model = self._get("model", str, "")
            self.stream = self._get("stream", bool | None, None) or False
            self.messages = self._get("messages", list[dict[str, Any]], [])
            options: dict[str, Any] = self._get("stream_options", dict[str, Any] | None, {}) or {}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            words = f"this is no request for a chat completion: {error}"
            raise Refusal(400, "bad_request", words) from None
        self.include_usage = bool(options.get("include_usage"))

    def _get(self, name: str, kind: Any, default: Any) -> Any:
        raw = self.fields.get(name)
        return default if raw is None else msgspec.json.decode(raw, type=kind)

    def asks_for(self, *names: str) -> bool:
        """Return whether one of these fields is there and says something."""
        given = (bytes(self.fields[name]) for name in names if name in self.fields)
        return any(one not in {b"null", b"[]"} for one in given)

    def sent(self, model: str | None, *, stream: bool, extra: Mapping[str, Any] = {}) -> bytes:
        """Return the body for an upstream: another model, not streamed unless the arm is final."""
        fields: dict[str, Any] = {**self.fields, **extra}
        if model is not None:
            fields["model"] = model
        if not stream and self.stream:
            fields["stream"] = False
            fields.pop("stream_options", None)  # not valid without a stream
        return _encode(fields)

    def plain(self) -> dict[str, Any]:
        """Return the request as Python values, for a stage that is a function."""
        return {name: msgspec.json.decode(raw) for name, raw in self.fields.items()}


def text_of(content: object) -> str:
    """Return the text of a message's content: a text, or a list of parts."""
    if isinstance(content, str):
        return content
    parts = cast(list[Any], content if isinstance(content, list) else [])
    texts = (cast(Any, part).get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


class Answer:
    """What a stage answered: a chat completion, as it came and as values.

    Examples
    --------
    >>> Answer.of_text("Spam!", "rule").text
    'Spam!'
    """

    def __init__(self, raw: bytes, cost: float = 0.0) -> None:
        self.raw = raw
        self.cost = cost
        try:
            self.body: dict[str, Any] = msgspec.json.decode(raw)
            self.choice: dict[str, Any] = self.body["choices"][0]
            self.message: dict[str, Any] = self.choice["message"]
            self.text = text_of(self.message.get("content"))
            used: Any = self.body.get("usage")
            self.usage: dict[str, Any] = cast(Any, used) if isinstance(used, dict) else {}
            tokens = (self.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
            self.tokens = tuple(int(one or 0) for one in tokens)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StageFailure(f"the answer is not JSON: {error}") from None
        except (LookupError, TypeError, AttributeError, ValueError):
            raise StageFailure("the answer is no chat completion: it has no message") from None
        if not (self.text or self.message.get("tool_calls") or self.message.get("refusal")):
            empty = self.message.get("content")
            if not isinstance(empty, str) and not self.message.get("function_call"):
                raise StageFailure("the answer is no chat completion: its message says nothing")

    @classmethod
    def of_text(cls, text: str, model: str) -> "Answer":
        """Return a text as a chat completion."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return cls(_encode({**_head("chat.completion", model), "choices": [choice]}))

    def logprobs(self) -> list[float]:
        """Return the log-probabilities of its tokens, where they are given."""
        try:
            content: list[Any] = self.choice["logprobs"]["content"]
            return [float(one["logprob"]) for one in content]
        except (LookupError, TypeError, ValueError):
            return []

    def with_usage(self, usage: Mapping[str, Any]) -> bytes:
        """Return the body with the usage of all stages that were asked."""
        same = not usage or usage == self.usage
        return self.raw if same else _encode({**_fields(self.raw), "usage": usage})

    def events(self, usage: Mapping[str, Any], *, include_usage: bool) -> bytes:
        """Return it as a stream that is sent at once."""
        head = _head("chat.completion.chunk", str(self.body.get("model", "")))
        head |= {name: self.body[name] for name in ("id", "created") if name in self.body}
        chunks: list[dict[str, Any]] = []
        for choice in self.body["choices"]:
            delta = dict(choice.get("message") or {})
            if delta.get("tool_calls"):
                delta["tool_calls"] = [
                    {"index": k, **call} for k, call in enumerate(delta["tool_calls"])
                ]
            begun = {"delta": delta, "finish_reason": None}
            chunks += [{**head, "choices": [{**choice, **begun}]}]
            chunks[-1]["choices"][0].pop("message", None)
            ended = {name: choice.get(name) for name in ("index", "finish_reason")}
            chunks += [{**head, "choices": [{**ended, "delta": {}}]}]
        if include_usage:
            chunks.append({**head, "choices": [], "usage": usage})
        return b"".join(map(event, chunks)) + DONE


def _head(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stopwise", "object": kind, "created": int(time.time()), "model": model}


def event(value: Any) -> bytes:
    """Return a value as an event of a stream."""
    return b"data: " + _encode(value) + b"\n\n"


def error_body(status: int, message: str, code: str | None = None, param: str | None = None) -> Any:
    """Return an error in OpenAI's shape.

    Examples
    --------
    >>> error_body(404, "no such model", "model_not_found")["error"]["type"]
    'invalid_request_error'
    """
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def total_usage(usages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of what stages used, field by field.

    Examples
    --------
    >>> total_usage([{"total_tokens": 3}, {"total_tokens": 4, "details": {"cached_tokens": 1}}])
    {'total_tokens': 7, 'details': {'cached_tokens': 1}}
    """
    total: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage.items():
            before = total.get(name)
            if isinstance(value, dict):
                known = cast(dict[str, Any], before if isinstance(before, dict) else {})
                total[name] = total_usage([known, cast(dict[str, Any], value)])
            elif isinstance(value, int | float) and isinstance(before, int | float):
                total[name] = before + value
            elif before is None:
                total[name] = value
    return total


class Streamed:
    """Collects the events of a stream into the answer that they amount to, in linear time."""

    def __init__(self, most: int = MAX_ANSWER) -> None:
        self.head: dict[str, Any] = {}
        self.choices: dict[int, dict[str, Any]] = {}
        self.usage: dict[str, Any] | None = None
        self.done = False
        self._logprobs: dict[int, bytearray] = {}  # of each choice: JSON, without the brackets
        self._most = most
        self._held = 0  # bytes

    def add(self, data: bytes) -> dict[str, Any] | None:
        """Add the data of an event; return it as values, None if it holds no part of an answer."""
        if data in (b"", b"[DONE]"):  # a comment, or the end
            self.done = self.done or bool(data)
            return None
        try:
            chunk: dict[str, Any] = msgspec.json.decode(data)
            if chunk.get("error"):
                raise StageFailure(f"the stream broke off: {chunk['error']}")
            self.head = self.head or {k: chunk[k] for k in ("id", "created", "model") if k in chunk}
            self.usage = chunk.get("usage") or self.usage
            for one in chunk.get("choices") or ():
                self._add(one)
        except (
            *(msgspec.MsgspecError, AttributeError, LookupError, TypeError),
            *(UnicodeError, RecursionError),
        ) as error:
            raise StageFailure(f"the stream holds what is no chunk of an answer: {error}") from None
        if self._held > self._most:
            raise too_large("the answer in the stream", self._most, "max_answer")
        return chunk

    def _add(self, one: dict[str, Any]) -> None:
        index = int(one.get("index") or 0)
        if index not in self.choices:
            self.choices[index] = {"index": index, "message": {"role": "assistant"}}
            self._held += OVERHEAD
        known = self.choices[index]
        message: dict[str, Any] = known["message"]
        delta: dict[str, Any] = one.get("delta") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                calls: dict[int, dict[str, Any]] = message.setdefault("tool_calls", {})
                for call in cast(list[dict[str, Any]], value or []):
                    self._append(calls.setdefault(int(call.get("index") or 0), {}), call)
            else:
                self._append(message, {name: value})
        if one.get("logprobs"):
            self._add_logprobs(index, one["logprobs"].get("content") or [])
        known["finish_reason"] = one.get("finish_reason") or known.get("finish_reason")

    def _add_logprobs(self, index: int, tokens: list[Any]) -> None:
        encoded = b",".join(map(_encode, tokens))
        collected = self._logprobs.setdefault(index, bytearray())
        if collected and encoded:
            collected += b","
        collected += encoded
        self._held += len(encoded)

    def _append(self, known: dict[str, Any], delta: Mapping[str, Any]) -> None:
        """Add a piece: texts grow, objects are merged, the rest is replaced."""
        for name, value in delta.items():
            before = known.get(name)
            if value is None:
                continue
            if name not in known:
                self._held += OVERHEAD + len(name)
            if isinstance(value, dict):
                self._append(known.setdefault(name, {}), cast(dict[str, Any], value))
            elif isinstance(value, str) and isinstance(before, Text):
                self._held += before.append(value)
            elif isinstance(value, str) and name not in {"role", "type"}:
                known[name] = Text()
                self._held += known[name].append(value)
            else:
                # Encoded: as values, JSON such as [[],[],…] takes twenty times its length.
                replaced = msgspec.Raw(_encode(value))
                self._held += len(replaced) - (
                    len(before) if isinstance(before, msgspec.Raw) else 0
                )
                known[name] = replaced

    @property
    def complete(self) -> bool:
        """Whether all of the answer has come: its end, or the end of each of its choices."""
        ended = [choice["finish_reason"] for choice in self.choices.values()]
        return self.done or (bool(ended) and all(ended))

    def body(self) -> bytes:
        """Return the answer as it would have come without a stream."""
        for index, choice in self.choices.items():
            message = choice["message"]
            message.setdefault("content", None)
            if calls := message.get("tool_calls"):
                message["tool_calls"] = [calls[k] for k in sorted(calls)]
            if index in self._logprobs:
                choice["logprobs"] = {"content": msgspec.Raw(b"[%b]" % self._logprobs[index])}
        choices = [self.choices[k] for k in sorted(self.choices)]
        usage = {} if self.usage is None else {"usage": self.usage}
        body = {**self.head, "object": "chat.completion", "choices": choices, **usage}
        return msgspec.json.encode(body, enc_hook=str)  # each `Text` is joined here, once


class Text:
    """A text that grows by pieces and is joined once.

    Examples
    --------
    >>> text = Text()
    >>> text.append("bill") + text.append("ing"), str(text)
    (7, 'billing')
    """

    def __init__(self) -> None:
        # UTF-8 and not a list: a string of one letter takes 50 bytes.
        self._pieces = bytearray()

    def append(self, piece: str) -> int:
        """Add a piece; return its bytes."""
        encoded = piece.encode()
        self._pieces += encoded
        return len(encoded)

    def __str__(self) -> str:
        return self._pieces.decode()
