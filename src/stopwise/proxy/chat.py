"""Chat completion requests, answers and streams in OpenAI's API format."""

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard, cast

import msgspec

from stopwise.errors import StopwiseError
from stopwise.service.domain.errors import RequestTooLarge
from stopwise.service.http.errors import BadRequest
from stopwise.text import shorten

DONE = b"data: [DONE]\n\n"
MAX_TOKENS = 1_000_000_000  # per call; a higher count is treated as an upstream error
MAX_PARTS = 1_000  # choices per answer, and tool calls per choice
MAX_DIGITS = 1_000  # in an integer; longer ones are decoded as infinite floats
USAGE_DEPTH = 4  # levels of nested objects in `usage`
MAX_ANSWER = 16_000_000  # bytes
MAX_DECODED = 80_000_000  # estimated bytes of memory for decoded JSON
MAX_STRINGS = 1_000_000  # strings to remove when the first memory estimate is too high
OVERHEAD = 500  # bytes of memory per field or entry, in addition to its value
Fields = dict[str, msgspec.Raw]
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)  # JSON strings


class Reply(NamedTuple):
    """An upstream's unmodified response, if it is not a chat completion."""

    status: int
    body: bytes
    media_type: str
    retry_after: str | None


class StageFailure(StopwiseError):
    """A stage did not answer.

    ``status`` is the HTTP status that the caller gets if no other stage answers. ``cost`` is the
    cost of the failed call.
    """

    def __init__(
        self, message: str, status: int = 502, reply: Reply | None = None, cost: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reply = reply
        self.cost = cost

    def copy(self) -> "StageFailure":
        """Return a copy without the traceback, whose frames hold the partial answer."""
        return StageFailure(str(self), self.status, self.reply, self.cost)


def too_large(subject: str, max_bytes: int, option: str) -> StageFailure:
    """Return the failure for a stage whose answer or stream exceeds a size limit.

    Examples
    --------
    >>> too_large("the answer", 16_000_000, "max_answer")
    StageFailure('the answer exceeds 16,000,000 bytes; to allow more, raise max_answer in [limits]')
    """
    return StageFailure(
        f"{subject} exceeds {max_bytes:,} bytes; to allow more, raise {option} in [limits]"
    )


class ChatRequest:
    """A chat completion request; unknown fields are forwarded byte for byte.

    Examples
    --------
    >>> chat = ChatRequest(b'{"model": "tickets", "messages": [], "seed": 1e0}')
    >>> chat.model, chat.upstream_body("small", stream=False)
    ('tickets', b'{"model":"small","messages":[],"seed":1e0}')
    """

    def __init__(self, body: bytes) -> None:
        self.raw = body
        if exceeds_memory(body):
            raise RequestTooLarge("the request has too many JSON values")
        try:
            self.fields = _fields(body)
            self.model = self._get("model", str, "")
            self.stream = self._get("stream", bool | None, None) or False
            self.messages = self._get("messages", list[dict[str, Any]], [])
            options: dict[str, Any] = self._get("stream_options", dict[str, Any] | None, {}) or {}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"invalid chat completion request: {error}") from None
        self.include_usage = bool(options.get("include_usage"))

    def _get(self, name: str, kind: Any, default: Any) -> Any:
        raw = self.fields.get(name)
        return default if raw is None else msgspec.json.decode(raw, type=kind)

    def has_any(self, *names: str) -> bool:
        """Return whether any of these fields is present and neither null nor an empty list."""
        values = (bytes(self.fields[name]) for name in names if name in self.fields)
        return any(value not in {b"null", b"[]"} for value in values)

    def upstream_body(
        self, model: str | None, *, stream: bool, extra: Mapping[str, Any] = {}
    ) -> bytes:
        """Return the request body for an upstream.

        ``model`` replaces the caller's model unless it is None. Without ``stream``, the answer is
        not streamed even if the caller asked for a stream.
        """
        fields: dict[str, Any] = {**self.fields, **extra}
        if model is not None:
            fields["model"] = model
        if not stream and self.stream:
            fields["stream"] = False
            fields.pop("stream_options", None)  # invalid without a stream
        return _encode(fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the decoded request, for stages that are Python functions."""
        return {name: msgspec.json.decode(raw) for name, raw in self.fields.items()}


def text_of(content: object) -> str:
    """Return the text in a message's ``content``, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = cast(list[Any], content if isinstance(content, list) else [])
    texts = (cast(Any, part).get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def prompt_of(chat: ChatRequest) -> str:
    """Return the text of all messages in a request."""
    return "\n".join(text_of(message.get("content")) for message in chat.messages)


class Answer:
    """A stage's answer: a chat completion, both raw and decoded.

    Examples
    --------
    >>> Answer.of_text("Spam!", "rule").text
    'Spam!'
    """

    def __init__(self, raw: bytes, cost: float = 0.0) -> None:
        self.raw = raw
        self.cost = cost
        try:
            self.body: dict[str, Any] = decode_json(raw)
            self.choice = _checked_choices(self.body)[0]
            self.message: dict[str, Any] = self.choice["message"]
            self.text = text_of(self.message.get("content"))
        except StageFailure:
            raise
        except (ValueError, RecursionError) as error:
            raise StageFailure(f"the answer cannot be decoded: {error}") from None
        self.usage, self.usage_error = read_usage(self.body.get("usage"))
        tokens = (self.usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        self.tokens: tuple[int, ...] = tuple(tokens)
        if not (self.text or self.message.get("tool_calls") or self.message.get("refusal")):
            content = self.message.get("content")
            if not isinstance(content, str) and not self.message.get("function_call"):
                raise _malformed("the message is empty")

    @classmethod
    def of_text(cls, text: str, model: str) -> "Answer":
        """Wrap a text in a chat completion."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return cls(_encode({**_head("chat.completion", model), "choices": [choice]}))

    def logprobs(self) -> list[float]:
        """Return the tokens' log-probabilities; empty if the upstream did not send them."""
        try:
            content: list[Any] = self.choice["logprobs"]["content"]
            return [float(token["logprob"]) for token in content]
        except (LookupError, TypeError, ValueError, OverflowError):
            return []

    def with_usage(self, usage: Mapping[str, Any]) -> bytes:
        """Return the raw answer with its ``usage`` replaced, or unchanged if ``usage`` is empty."""
        if not usage or usage == self.usage:
            return self.raw
        try:
            return _encode({**_fields(self.raw), "usage": usage})
        except msgspec.DecodeError:  # the answer contains NaN or a huge number
            return _encode({**self.body, "usage": usage})

    def events(self, usage: Mapping[str, Any], *, include_usage: bool) -> bytes:
        """Return the answer as a complete stream of server-sent events."""
        head = _head("chat.completion.chunk", str(self.body.get("model", "")))
        head |= {name: self.body[name] for name in ("id", "created") if name in self.body}
        chunks: list[dict[str, Any]] = []
        for choice in self.body["choices"]:
            delta = dict(choice.get("message") or {})
            if delta.get("tool_calls"):
                delta["tool_calls"] = [
                    {"index": k, **call} for k, call in enumerate(delta["tool_calls"])
                ]
            first = {**choice, "delta": delta, "finish_reason": None}
            first.pop("message", None)
            chunks.append({**head, "choices": [first]})
            last = {name: choice.get(name) for name in ("index", "finish_reason")}
            chunks.append({**head, "choices": [{**last, "delta": {}}]})
        if include_usage:
            chunks.append({**head, "choices": [], "usage": usage})
        return b"".join(map(event, chunks)) + DONE


def decode_json(raw: bytes) -> Any:
    """Decode JSON, including the NaN, Infinity and huge numbers that some upstreams send.

    Raises `ValueError` if the text is not JSON or would take too much memory.
    """
    if exceeds_memory(raw):
        raise ValueError("too many JSON values")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = json.loads(raw, parse_int=_integer)
        _encode(value)  # rejects lone surrogates, which cannot be forwarded
        return value


def exceeds_memory(raw: bytes) -> bool:
    """Return whether this JSON could take more than `MAX_DECODED` bytes once decoded.

    Examples
    --------
    >>> [exceeds_memory(b'["%b"]' % (b"[]," * n)) for n in (1_000_000, 5_000_000)]
    [False, False]
    >>> exceeds_memory(b"[%b[]]" % (b"[]," * 1_000_000))
    True
    """
    if _memory(raw) <= MAX_DECODED:  # fast, but also counts brackets inside strings
        return False
    too_many_strings = raw.count(b'"') > 2 * MAX_STRINGS  # removing one takes a microsecond
    return too_many_strings or len(raw) + _memory(_STRINGS.sub(b"", raw)) > MAX_DECODED


def _memory(raw: bytes) -> int:
    return len(raw) + 56 * (raw.count(b",") + raw.count(b"[")) + 176 * raw.count(b"{")


def _integer(digits: str) -> int | float:
    """Convert digits to a number, even if there are more than Python accepts in an integer."""
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)


def _checked_choices(body: object) -> list[dict[str, Any]]:
    """Return the choices of a chat completion; raise `StageFailure` if any is invalid.

    Callers execute tool calls, so malformed tool calls must not reach them.
    """
    choices: Any = cast(Any, body).get("choices") if isinstance(body, dict) else None
    if not _is_object_list(choices) or not choices:
        raise _malformed("choices must be a list of objects")
    for choice in cast(list[dict[str, Any]], choices):
        if not isinstance(choice.get("message"), dict):
            raise _malformed("the message is missing")
        message: dict[str, Any] = choice["message"]
        calls: Any = message.get("tool_calls")
        if not is_index(choice.get("index")):
            raise _malformed(f"the index of a choice must be an integer in [0, {MAX_PARTS})")
        if calls is not None and not (_is_object_list(calls) and all(map(_is_tool_call, calls))):
            raise _malformed("tool_calls must be a list of objects with a named function")
        if not isinstance(message.get("function_call"), dict | None):
            raise _malformed("function_call must be an object")
    return choices


def _malformed(problem: str) -> StageFailure:
    return StageFailure(f"the answer is not a chat completion: {problem}")


def _is_object_list(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict) for entry in cast(list[object], value)
    )


def _is_tool_call(call: Mapping[str, Any]) -> bool:
    """Return whether a tool call has the name of a function or custom tool."""
    tool: Any = call.get("function") or call.get("custom")
    return isinstance(tool, dict) and isinstance(cast(Any, tool).get("name"), str)


def is_index(value: object) -> bool:
    """Return whether a value is None or a valid index of a choice or tool call."""
    return value is None or (type(value) is int and 0 <= value < MAX_PARTS)


def read_usage(usage: object) -> tuple[dict[str, Any], str]:
    """Return an answer's ``usage`` and "", or if ``usage`` is invalid, {} and the problem.

    If any token count is not an integer from 0 to `MAX_TOKENS`, ``usage`` is ignored altogether,
    because a negative count would add to every budget.

    Examples
    --------
    >>> read_usage({"prompt_tokens": 3, "completion_tokens": 1.0})
    ({'prompt_tokens': 3, 'completion_tokens': 1}, '')
    >>> read_usage({"prompt_tokens": 3, "completion_tokens": -1})
    ({}, 'completion_tokens is -1')
    """
    if usage is None:
        return {}, ""
    if not isinstance(usage, dict):
        return {}, "usage is not an object"
    try:
        return _checked_usage(cast(dict[str, Any], usage), USAGE_DEPTH), ""
    except ValueError as error:
        return {}, str(error)


def _checked_usage(usage: dict[str, Any], depth: int) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in usage.items():
        if name.endswith("_tokens") and value is not None:
            if not _is_number(value) or not 0 <= value <= MAX_TOKENS or value != int(value):
                raise ValueError(f"{shorten(name)} is {_display(value)}")
            checked[name] = int(value)
        elif isinstance(value, dict):
            if depth > 1:
                checked[name] = _checked_usage(cast(dict[str, Any], value), depth - 1)
        elif not _is_number(value) or 0 <= value <= MAX_TOKENS:
            checked[name] = value
    return checked


def _display(value: object) -> str:
    """Return a description of a value for the log, which must not contain text from answers."""
    if not isinstance(value, int | float):
        return f"of type {type(value).__name__}"
    try:
        return shorten(repr(value))
    except ValueError:  # Python does not format integers of more than 4,300 digits
        return "a huge number"


def _head(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stopwise", "object": kind, "created": int(time.time()), "model": model}


def event(value: Any) -> bytes:
    """Encode a value as a server-sent event."""
    return b"data: " + _encode(value) + b"\n\n"


def error_body(status: int, message: str, code: str | None = None, param: str | None = None) -> Any:
    """Return the body of an error response in OpenAI's format.

    Examples
    --------
    >>> error_body(404, "no such model", "model_not_found")["error"]["type"]
    'invalid_request_error'
    """
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def total_usage(usages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the ``usage`` of several answers, field by field.

    Examples
    --------
    >>> total_usage([{"total_tokens": 3}, {"total_tokens": 4, "details": {"cached_tokens": 1}}])
    {'total_tokens': 7, 'details': {'cached_tokens': 1}}
    """
    total: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage.items():
            subtotal = total.get(name)
            if isinstance(value, dict):
                nested = cast(dict[str, Any], subtotal if isinstance(subtotal, dict) else {})
                total[name] = total_usage([nested, cast(dict[str, Any], value)])
            elif _is_number(value) and _is_number(subtotal):
                total[name] = subtotal + value
            elif subtotal is None:
                total[name] = value
    return total


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class StreamCollector:
    """Collects the events of a stream into one answer, in linear time."""

    def __init__(self, max_bytes: int = MAX_ANSWER) -> None:
        self.head: dict[str, Any] = {}
        self.choices: dict[int, dict[str, Any]] = {}
        self.usage: dict[str, Any] | None = None
        self.done = False
        self._logprobs: dict[int, bytearray] = {}  # by choice: JSON without the brackets
        self._max_bytes = max_bytes
        self._held = 0  # bytes

    def add(self, data: bytes) -> dict[str, Any] | None:
        """Add an event's data; return the decoded chunk, or None for a comment or the end."""
        if data in (b"", b"[DONE]"):  # a comment or the end
            self.done = self.done or bool(data)
            return None
        try:
            chunk: dict[str, Any] = decode_json(data)
            if chunk.get("error"):
                raise StageFailure(f"the stream broke off: {chunk['error']}")
            self.head = self.head or {k: chunk[k] for k in ("id", "created", "model") if k in chunk}
            self.usage = chunk.get("usage") or self.usage
            choices: Any = chunk.get("choices") or []
            if not isinstance(choices, list):
                raise TypeError("choices must be a list")
            for choice in cast(list[dict[str, Any]], choices):
                self._add_choice(choice)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise StageFailure(f"invalid stream chunk: {error}") from None
        if self._held > self._max_bytes:
            raise too_large("the answer in the stream", self._max_bytes, "max_answer")
        return chunk

    def _add_choice(self, part: dict[str, Any]) -> None:
        index = _index(part)
        if index not in self.choices:
            self.choices[index] = {"index": index, "message": {"role": "assistant"}}
            self._held += OVERHEAD
        choice = self.choices[index]
        message: dict[str, Any] = choice["message"]
        delta: dict[str, Any] = part.get("delta") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                calls: dict[int, dict[str, Any]] = message.setdefault("tool_calls", {})
                if not isinstance(value, list | None):
                    raise TypeError("tool_calls must be a list")
                for call in cast(list[dict[str, Any]], value or []):
                    self._append(calls.setdefault(_index(call), {}), call)
            else:
                self._append(message, {name: value})
        if part.get("logprobs"):
            self._add_logprobs(index, part["logprobs"].get("content") or [])
        choice["finish_reason"] = part.get("finish_reason") or choice.get("finish_reason")

    def _add_logprobs(self, index: int, tokens: list[Any]) -> None:
        encoded = b",".join(map(_encode, tokens))
        collected = self._logprobs.setdefault(index, bytearray())
        if collected and encoded:
            collected += b","
        collected += encoded
        self._held += len(encoded)

    def _append(self, target: dict[str, Any], delta: Mapping[str, Any]) -> None:
        """Merge a delta into the target: append strings, merge objects, replace other values."""
        for name, value in delta.items():
            previous = target.get(name)
            if value is None:
                continue
            if name not in target:
                self._held += OVERHEAD + len(name)
            if isinstance(value, dict):
                self._append(target.setdefault(name, {}), cast(dict[str, Any], value))
            elif isinstance(value, str) and isinstance(previous, TextBuffer):
                self._held += previous.append(value)
            elif isinstance(value, str) and name not in {"role", "type"}:
                target[name] = TextBuffer()
                self._held += target[name].append(value)
            else:
                # Stored encoded, because JSON such as [[],[],…] takes 20 times more once decoded.
                encoded = msgspec.Raw(_encode(value))
                if isinstance(previous, msgspec.Raw):
                    self._held -= len(previous)
                self._held += len(encoded)
                target[name] = encoded

    @property
    def complete(self) -> bool:
        """Whether the answer is complete: the stream or each of its choices has ended."""
        finish_reasons = [choice["finish_reason"] for choice in self.choices.values()]
        return self.done or (bool(finish_reasons) and all(finish_reasons))

    def body(self) -> bytes:
        """Return the collected answer as a chat completion that is not streamed."""
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
        return msgspec.json.encode(body, enc_hook=str)  # joins each `TextBuffer` once


def _index(part: Mapping[str, Any]) -> int:
    index = part.get("index")
    if not is_index(index):
        raise ValueError(f"index must be an integer in [0, {MAX_PARTS}), got {_display(index)}")
    return index or 0


class TextBuffer:
    """A text built by appending pieces.

    Examples
    --------
    >>> text = TextBuffer()
    >>> text.append("bill") + text.append("ing"), str(text)
    (7, 'billing')
    """

    def __init__(self) -> None:
        # UTF-8 bytes rather than a list of strings, since a one-letter string takes 50 bytes.
        self._pieces = bytearray()

    def append(self, piece: str) -> int:
        """Append a piece; return its length in bytes."""
        encoded = piece.encode()
        self._pieces += encoded
        return len(encoded)

    def __str__(self) -> str:
        return self._pieces.decode()
