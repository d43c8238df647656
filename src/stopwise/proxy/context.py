"""Context without code: numbers of a request, and of each answer, always finite and as many."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from stopwise.proxy.chat import Answer, Chat, prompt_of
from stopwise.service.server_log import LOG

Known: TypeAlias = Literal["length", "turns", "tools", "schema"]
Embed: TypeAlias = Callable[[str], Awaitable[Sequence[float]]]
# Numbers that an answer adds to the context.
REVEALED_NAMES = (
    "mean log-probability", "least log-probability", "has log-probabilities", "length", "refuses",
)  # fmt: skip
REVEALED = len(REVEALED_NAMES)
LEAST = -50.0  # of a log-probability: 0 has none that is finite
SAYS_NO = (
    "i can't", "i cannot", "i can not", "i'm sorry", "i am sorry", "i'm unable", "i am unable",
    "i'm not able", "i am not able", "i won't", "as an ai", "i don't know", "i do not know",
)  # fmt: skip


def of_request(chat: Chat, kinds: Sequence[Known]) -> list[float]:
    """Return what is known before the first arm.

    Examples
    --------
    >>> chat = Chat(b'{"messages": [{"role": "user", "content": "Hi"}], "tools": [{}]}')
    >>> of_request(chat, ["turns", "tools", "schema"])
    [1.0, 1.0, 0.0]
    """
    numbers: dict[Known, Callable[[], float]] = {
        "length": lambda: math.log1p(len(prompt_of(chat))),
        "turns": lambda: float(len(chat.messages)),
        "tools": lambda: float(chat.asks_for("tools", "functions")),
        "schema": lambda: float(chat.asks_for("response_format")),
    }
    return [numbers[kind]() for kind in kinds]


def of_answer(answer: Answer) -> list[float]:
    """Return what an answer reveals.

    Mean and least log-probability of its tokens and whether there are any, its length, and whether
    it refuses to answer.

    Examples
    --------
    >>> [round(one, 2) for one in of_answer(Answer.of_text("I can't help with that.", "small"))]
    [0.0, 0.0, 0.0, 3.18, 1.0]
    """
    given = [max(one, LEAST) if one == one else LEAST for one in answer.logprobs()]
    known = [min(one, 0.0) for one in given] or [0.0]
    text = answer.text.casefold().replace("\u2019", "'").lstrip()
    refuses = bool(answer.message.get("refusal")) or any(one in text[:200] for one in SAYS_NO)
    length = math.log1p(len(answer.text))
    return [sum(known) / len(known), min(known), float(bool(given)), length, float(refuses)]


class Projection:
    """Reduces an embedding to a few numbers, by a fixed random projection.

    Examples
    --------
    >>> Projection(size=2, seed=7).of([0.5, 0.5, 0.1]) == Projection(2, 7).of([0.5, 0.5, 0.1])
    True
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._seed = seed
        self._matrix = np.empty((size, 0))

    def of(self, embedding: Sequence[float]) -> list[float]:
        """Return ``size`` numbers, then 1; zeros where there is no embedding that can be used."""
        given: Any = np.asarray(embedding, dtype=np.float64).ravel()
        if not len(given) or not np.isfinite(given).all():
            return [0.0] * (self.size + 1)
        if self._matrix.shape[1] != len(given):
            random = np.random.default_rng(self._seed)
            self._matrix = random.standard_normal((self.size, len(given))) / math.sqrt(self.size)
        length = float(np.linalg.norm(given)) or 1.0
        return [*(self._matrix @ (given / length)).tolist(), 1.0]

    async def of_prompt(self, chat: Chat, embed: Embed) -> list[float]:
        """Return the numbers of a request; zeros if it cannot be embedded now."""
        try:
            return self.of(await embed(prompt_of(chat)))
        except Exception as error:  # a function of the user's, or an upstream
            LOG.warning("no embedding", extra={"reason": str(error)})
            return [0.0] * (self.size + 1)
