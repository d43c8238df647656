"""Cascades at work, made without a server, and pages taken apart."""

from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np

from stopwise.service.dashboard import cascade, overview, views
from stopwise.service.dashboard.html import Files
from stopwise.service.dashboard.values import Running, Visitor
from stopwise.service.learner import Learner
from stopwise.service.messages import Arm, CascadeSpec
from stopwise.service.state import State

BEGAN = 1_700_000_000.0
BASE = "http://127.0.0.1:8350"
FILES = Files("/static/dashboard.css", "/static/dashboard.js", "/static/icon.svg")
EVIL = "<script>alert(1)</script>\"'&"
VOID = {"meta", "link", "img", "input", "br"}


def running(now: float = BEGAN + 3_600, **changes: Any) -> Running:
    known = {"position": 12_345, "last": BEGAN + 3_590, "lag": 0.1, "waiting": 0}
    return Running(**{"now": now, "trouble": "", "recovering": "", **known, **changes})


def spec(
    name: str = "triage",
    arms: Sequence[str] = ("history", "glucose", "insulin"),
    context: int | list[str] = 2,
    **more: Any,
) -> CascadeSpec:
    costs = [0.1, 0.3, 0.2, *([0.02] * len(arms))]
    made = [Arm(arm, cost) for arm, cost in zip(arms, costs, strict=False)]
    return CascadeSpec(name, made, context, **more)


def at_work(
    given: CascadeSpec | None = None, rounds: int = 200, *, told: int | None = None, index: int = 0
) -> Learner:
    """A cascade that has decided so often, a decision every ten seconds.

    Outputs were told of the first ``told`` (by default of all).
    """
    learner = Learner(index, given or spec(), BEGAN)
    rng = np.random.default_rng(5)
    size = learner.spec.context if isinstance(learner.spec.context, int) else 2
    for k in range(rounds):
        time = BEGAN + 10.0 * k
        x = rng.uniform(-1, 1, size=(1, size))
        event, _ = learner.decide(x, time, None, 2 * k + 1)
        if told is None or k < told:
            often = 0.2 if x[0, 0] < 0 else 0.45  # where the cheap arms err
            wrong = (
                rng.random(learner.cascade.n_arms)
                < [often, *([0.02] * 14)][: learner.cascade.n_arms]
            )
            outputs = {a: b"1" if wrong[a] else b"0" for a in range(event.stops[0] + 1)}
            learner.tell(k, outputs, final=False, time=time + 1, position=2 * k + 2)
    return learner


def state_of(*learners: Learner) -> State:
    state = State()
    for learner in learners:
        state.order.append(learner)
        state.cascades[learner.spec.name] = learner
    return state


def page_of(learner: Learner, visitor: Visitor | None = None, *, unconfirmed: bool = False) -> str:
    whole = views.whole(learner, BASE)
    return cascade.cascade(FILES, visitor or Visitor(), running(), whole, unconfirmed=unconfirmed)


def overview_of(*learners: Learner, now: Running | None = None) -> str:
    glances = [views.glance(one) for one in views.ordered(learners)]
    return overview.overview(
        FILES,
        Visitor(),
        now or running(),
        glances,
        create=views.create_command(BASE),
        sums=views.sums(learners),
    )


class Taken(HTMLParser):
    """A page taken apart: its elements, its text, and whether all that opens is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\xa0", " ").split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]
