"""Chat completions: requests, answers and streams, as OpenAI's API has them."""

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
MOST_TOKENS = 1_000_000_000  # of one call; a higher count is an error of the upstream
MOST_PARTS = 1_000  # choices of an answer, and tool calls of a choice
MOST_DIGITS = 1_000  # of an integer; a float of as many is infinite
USAGE_DEPTH = 4  # of objects in `usage`
MAX_ANSWER = 16_000_000  # bytes
MOST_MEMORY = 80_000_000  # bytes that JSON may take once it is decoded, as estimated
MOST_TEXTS = 1_000_000  # in JSON that may take that much
OVERHEAD = 500  # bytes of memory that a field or an entry takes beside its value
Fields = dict[str, msgspec.Raw]
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)  # in JSON


class Reply(NamedTuple):
    """What an upstream replied instead of an answer, as it came."""

    status: int
    body: bytes
    media_type: str
    retry_after: str | None


class StageFailure(StopwiseError):
    """A stage gave no answer.

    ``status`` is what the caller gets if no other stage has one; ``cost`` is what the call cost
    all the same.
    """

    def __init__(
        self, message: str, status: int = 502, reply: Reply | None = None, cost: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reply = reply
        self.cost = cost

    def copy(self) -> "StageFailure":
        """Return an equal failure without a traceback, whose frames hold all that was read."""
        return StageFailure(str(self), self.status, self.reply, self.cost)


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
        if has_too_many_values(body):
            raise RequestTooLarge("the request has too many values")
        try:
            self.fields = _fields(body)
            self.model = self._get("model", str, "")
            self.stream = self._get("stream", bool | None, None) or False
            self.messages = self._get("messages", list[dict[str, Any]], [])
            options: dict[str, Any] = self._get("stream_options", dict[str, Any] | None, {}) or {}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            words = f"invalid request for a chat completion: {error}"
            raise BadRequest(words) from None
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


def prompt_of(chat: Chat) -> str:
    """Return all text of a request."""
    return "\n".join(text_of(message.get("content")) for message in chat.messages)


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
            self.body: dict[str, Any] = decode_json(raw)
            self.choice = _checked_choices(self.body)[0]
            self.message: dict[str, Any] = self.choice["message"]
            self.text = text_of(self.message.get("content"))
        except StageFailure:
            raise
        except (ValueError, RecursionError) as error:
            raise StageFailure(f"the answer is not JSON: {error}") from None
        self.usage, self.usage_error = read_usage(self.body.get("usage"))
        tokens = (self.usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        self.tokens: tuple[int, ...] = tuple(tokens)
        if not (self.text or self.message.get("tool_calls") or self.message.get("refusal")):
            empty = self.message.get("content")
            if not isinstance(empty, str) and not self.message.get("function_call"):
                raise _malformed("its message is empty")

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
        except (LookupError, TypeError, ValueError, OverflowError):
            return []

    def with_usage(self, usage: Mapping[str, Any]) -> bytes:
        """Return the body with the usage of all stages that were asked."""
        if not usage or usage == self.usage:
            return self.raw
        try:
            return _encode({**_fields(self.raw), "usage": usage})
        except msgspec.DecodeError:  # it has NaN or a huge number, which are not JSON
            return _encode({**self.body, "usage": usage})

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


def decode_json(raw: bytes) -> Any:
    """Return a JSON value; NaN, Infinity and huge numbers, which some upstreams write, are floats.

    A `ValueError` says that it is not JSON, or that its values would take too much memory.
    """
    if has_too_many_values(raw):
        raise ValueError("it has too many values")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = json.loads(raw, parse_int=_integer)
        _encode(value)  # or it has half of a surrogate pair, which cannot be sent on
        return value


def has_too_many_values(raw: bytes) -> bool:
    """Return whether JSON could take more than `MOST_MEMORY` as values.

    Examples
    --------
    >>> [has_too_many_values(b'["%b"]' % (b"[]," * n)) for n in (1_000_000, 5_000_000)]
    [False, False]
    >>> has_too_many_values(b"[%b[]]" % (b"[]," * 1_000_000))
    True
    """
    if _memory(raw) <= MOST_MEMORY:  # quick, but what is in texts counts as well
        return False
    many_texts = raw.count(b'"') > 2 * MOST_TEXTS  # finding them takes a microsecond each
    return many_texts or len(raw) + _memory(_TEXTS.sub(b"", raw)) > MOST_MEMORY


def _memory(raw: bytes) -> int:
    return len(raw) + 56 * (raw.count(b",") + raw.count(b"[")) + 176 * raw.count(b"{")


def _integer(digits: str) -> int | float:
    """Return a number that may have more digits than Python reads as an integer."""
    return int(digits) if len(digits) < MOST_DIGITS else float(digits)


def _checked_choices(body: object) -> list[dict[str, Any]]:
    """Return the choices of a chat completion, or raise `StageFailure`: a client cannot use them.

    Tool calls are run by the caller, so a malformed one must not get there.
    """
    choices: Any = cast(Any, body).get("choices") if isinstance(body, dict) else None
    if not _are_objects(choices) or not choices:
        raise _malformed("choices must be a list of objects")
    for choice in cast(list[dict[str, Any]], choices):
        if not isinstance(choice.get("message"), dict):
            raise _malformed("it has no message")
        message: dict[str, Any] = choice["message"]
        calls: Any = message.get("tool_calls")
        if not is_index(choice.get("index")):
            raise _malformed(f"the index of a choice must be a number from 0 to {MOST_PARTS - 1}")
        if calls is not None and not (_are_objects(calls) and all(map(_is_call, calls))):
            raise _malformed("tool_calls must be a list of objects with a function and its name")
        if not isinstance(message.get("function_call"), dict | None):
            raise _malformed("function_call must be an object")
    return choices


def _malformed(problem: str) -> StageFailure:
    return StageFailure(f"the answer is not a chat completion: {problem}")


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) for one in cast(list[object], value)
    )


def _is_call(call: Mapping[str, Any]) -> bool:
    """Return whether a tool call names a function, or a custom tool."""
    called: Any = call.get("function") or call.get("custom")
    return isinstance(called, dict) and isinstance(cast(Any, called).get("name"), str)


def is_index(value: object) -> bool:
    """Return whether a value can be the index of a part; it may be missing (None)."""
    return value is None or (type(value) is int and 0 <= value < MOST_PARTS)


def read_usage(given: object) -> tuple[dict[str, Any], str]:
    """Return the ``usage`` of an answer, and what is wrong with it.

    Where a token count is not a number from 0 to `MOST_TOKENS`, nothing in it is believed: a
    negative count would be a credit in every budget.

    Examples
    --------
    >>> read_usage({"prompt_tokens": 3, "completion_tokens": 1.0})
    ({'prompt_tokens': 3, 'completion_tokens': 1}, '')
    >>> read_usage({"prompt_tokens": 3, "completion_tokens": -1})
    ({}, 'completion_tokens is -1')
    """
    if given is None:
        return {}, ""
    if not isinstance(given, dict):
        return {}, "usage is not an object"
    try:
        return _checked_usage(cast(dict[str, Any], given), USAGE_DEPTH), ""
    except ValueError as error:
        return {}, str(error)


def _checked_usage(usage: dict[str, Any], depth: int) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in usage.items():
        if name.endswith("_tokens") and value is not None:
            if not _is_number(value) or not 0 <= value <= MOST_TOKENS or value != int(value):
                raise ValueError(f"{shorten(name)} is {_shown(value)}")
            checked[name] = int(value)
        elif isinstance(value, dict):
            if depth > 1:
                checked[name] = _checked_usage(cast(dict[str, Any], value), depth - 1)
        elif not _is_number(value) or 0 <= value <= MOST_TOKENS:
            checked[name] = value
    return checked


def _shown(value: object) -> str:
    """Return a value in words for the log, which holds no text of an answer."""
    if not isinstance(value, int | float):
        return f"of type {type(value).__name__}"
    try:
        return shorten(repr(value))
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a huge number"


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
            elif _is_number(value) and _is_number(before):
                total[name] = before + value
            elif before is None:
                total[name] = value
    return total


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
            chunk: dict[str, Any] = decode_json(data)
            if chunk.get("error"):
                raise StageFailure(f"the stream broke off: {chunk['error']}")
            self.head = self.head or {k: chunk[k] for k in ("id", "created", "model") if k in chunk}
            self.usage = chunk.get("usage") or self.usage
            choices: Any = chunk.get("choices") or []
            if not isinstance(choices, list):
                raise TypeError("choices must be a list")
            for one in cast(list[dict[str, Any]], choices):
                self._add(one)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise StageFailure(f"the stream has an invalid chunk: {error}") from None
        if self._held > self._most:
            raise too_large("the answer in the stream", self._most, "max_answer")
        return chunk

    def _add(self, one: dict[str, Any]) -> None:
        index = _index(one)
        if index not in self.choices:
            self.choices[index] = {"index": index, "message": {"role": "assistant"}}
            self._held += OVERHEAD
        known = self.choices[index]
        message: dict[str, Any] = known["message"]
        delta: dict[str, Any] = one.get("delta") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                calls: dict[int, dict[str, Any]] = message.setdefault("tool_calls", {})
                if not isinstance(value, list | None):
                    raise TypeError("tool_calls must be a list")
                for call in cast(list[dict[str, Any]], value or []):
                    self._append(calls.setdefault(_index(call), {}), call)
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


def _index(part: Mapping[str, Any]) -> int:
    index = part.get("index")
    if not is_index(index):
        raise ValueError(f"index must be a number from 0 to {MOST_PARTS - 1}, got {_shown(index)}")
    return index or 0


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
