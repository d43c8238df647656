"""Context features of requests and answers: always the same number of finite values."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from stopwise.proxy.chat import Answer, ChatRequest, prompt_of
from stopwise.service.server_log import LOG

RequestFeature: TypeAlias = Literal["length", "turns", "tools", "schema"]
Embed: TypeAlias = Callable[[str], Awaitable[Sequence[float]]]
# Features that each answer adds to the context.
REVEALED_NAMES = (
    "mean log-probability", "minimum log-probability", "has log-probabilities", "length", "refusal",
)  # fmt: skip
REVEALED = len(REVEALED_NAMES)
MIN_LOGPROB = -50.0  # lower values are clipped, since the logarithm of 0 is not finite
REFUSALS = (
    "i can't", "i cannot", "i can not", "i'm sorry", "i am sorry", "i'm unable", "i am unable",
    "i'm not able", "i am not able", "i won't", "as an ai", "i don't know", "i do not know",
)  # fmt: skip


def request_features(chat: ChatRequest, names: Sequence[RequestFeature]) -> list[float]:
    """Return the context features of a request.

    Examples
    --------
    >>> chat = ChatRequest(b'{"messages": [{"role": "user", "content": "Hi"}], "tools": [{}]}')
    >>> request_features(chat, ["turns", "tools", "schema"])
    [1.0, 1.0, 0.0]
    """
    features: dict[RequestFeature, Callable[[], float]] = {
        "length": lambda: math.log1p(len(prompt_of(chat))),
        "turns": lambda: float(len(chat.messages)),
        "tools": lambda: float(chat.has_any("tools", "functions")),
        "schema": lambda: float(chat.has_any("response_format")),
    }
    return [features[name]() for name in names]


def answer_features(answer: Answer) -> list[float]:
    """Return the features that an answer adds to the context, in `REVEALED_NAMES` order.

    Examples
    --------
    >>> answer = Answer.of_text("I can't help with that.", "small")
    >>> [round(feature, 2) for feature in answer_features(answer)]
    [0.0, 0.0, 0.0, 3.18, 1.0]
    """
    logprobs = [
        MIN_LOGPROB if math.isnan(value) else min(max(value, MIN_LOGPROB), 0.0)
        for value in answer.logprobs()
    ]
    has_logprobs = bool(logprobs)
    logprobs = logprobs or [0.0]
    start = answer.text.casefold().replace("\u2019", "'").lstrip()[:200]
    refusal = bool(answer.message.get("refusal")) or any(phrase in start for phrase in REFUSALS)
    return [
        sum(logprobs) / len(logprobs),
        min(logprobs),
        float(has_logprobs),
        math.log1p(len(answer.text)),
        float(refusal),
    ]


class Projection:
    """A fixed random projection of embeddings to ``size`` numbers.

    Examples
    --------
    >>> embedding = [0.5, 0.5, 0.1]
    >>> Projection(size=2, seed=7).project(embedding) == Projection(2, 7).project(embedding)
    True
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._seed = seed
        self._matrix = np.empty((size, 0))

    def project(self, embedding: Sequence[float]) -> list[float]:
        """Return ``size`` numbers followed by 1, or ``size`` + 1 zeros for an invalid embedding.

        An embedding is invalid if it is empty or contains NaN or infinite values.
        """
        vector: Any = np.asarray(embedding, dtype=np.float64).ravel()
        if not len(vector) or not np.isfinite(vector).all():
            return [0.0] * (self.size + 1)
        if self._matrix.shape[1] != len(vector):
            random = np.random.default_rng(self._seed)
            self._matrix = random.standard_normal((self.size, len(vector))) / math.sqrt(self.size)
        norm = float(np.linalg.norm(vector)) or 1.0
        return [*(self._matrix @ (vector / norm)).tolist(), 1.0]

    async def embed_prompt(self, chat: ChatRequest, embed: Embed) -> list[float]:
        """Return the projected embedding of a prompt, or zeros if it cannot be embedded."""
        try:
            return self.project(await embed(prompt_of(chat)))
        except Exception as error:  # from the user's function or an upstream
            LOG.warning("embedding failed", extra={"reason": str(error)})
            return [0.0] * (self.size + 1)
