"""Sample cascades and parsed pages, without a server."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from stopwise.service.dashboard import views
from stopwise.service.dashboard.pages import render
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.state import State
from stopwise.service.http.keys import Key
from tests.unit.reporting.reader import Reader

BEGAN = 1_700_000_000.0
NOW = BEGAN + 3_600
BASE = "http://127.0.0.1:8350"
EVIL = "<script>alert(1)</script>\"'&"
STAGED = {"features": {"kind": "identity"}, "policy": {"kind": "uss-pd", "reveals": 1}}


def key(name: str = "ops") -> Key:
    return Key("k1", name, ("admin",), "sha256:" + 64 * "0", created=0.0)


def service(*, write_error: str = "", **changes: Any) -> Any:
    """A stand-in for the service, with the attributes that pages show."""
    state = SimpleNamespace(position=12_345, time=BEGAN + 3_590)
    writer = SimpleNamespace(waiting=0, write_error=write_error)
    attributes = {"state": state, "lag": 0.1, "writer": writer, "not_ready": ""}
    return SimpleNamespace(**{**attributes, **changes})


def spec(
    name: str = "triage",
    arms: Sequence[str] = ("history", "glucose", "insulin"),
    context: int | list[str] = 2,
    **more: Any,
) -> CascadeSpec:
    costs = [0.1, 0.3, 0.2, *([0.02] * len(arms))]
    priced = [Arm(arm, cost) for arm, cost in zip(arms, costs, strict=False)]
    return CascadeSpec(name, priced, context, **more)


def cascade_of(
    definition: CascadeSpec | None = None, rounds: int = 200, *, reported: int | None = None
) -> ServedCascade:
    """A cascade with a round every ten seconds; the first ``reported`` (or all) have outputs."""
    cascade = ServedCascade(0, definition or spec(), BEGAN)
    rng = np.random.default_rng(5)
    size = cascade.spec.context if isinstance(cascade.spec.context, int) else 2
    n_arms = cascade.arms.n_arms
    for k in range(rounds):
        time = BEGAN + 10.0 * k
        x = rng.uniform(-1, 1, size)
        _, (answer,) = cascade.open([x.tolist()], time, 2 * k + 1)
        if reported is None or k < reported:
            error_rate = 0.2 if x[0] < 0 else 0.45  # of the cheapest arm
            wrong = rng.random(n_arms) < [error_rate, *([0.02] * 14)][:n_arms]
            assert answer.stop is not None
            outputs: list[object] = [int(w) for w in wrong[: answer.stop + 1]]
            cascade.report(k, outputs, [], False, time + 1, 2 * k + 2)
    return cascade


def state_of(cascade: ServedCascade) -> State:
    state = State()
    state.order.append(cascade)
    state.cascades[cascade.spec.name] = cascade
    return state


def shown(template: str, title: str, **values: Any) -> str:
    defaults = {"service": service(), "now": NOW, "base": BASE, "key": None}
    return render(template, title=title, **{**defaults, **values})


def page_of(cascade: ServedCascade, **values: Any) -> str:
    return shown("cascade.html", cascade.spec.name, c=views.detail(cascade), **values)


def overview_of(*cascades: ServedCascade, **values: Any) -> str:
    counts = {
        "rows": [views.summary(cascade) for cascade in cascades],
        "total": len(cascades),
        "active": sum(cascade.status == "active" for cascade in cascades),
        "rounds": sum(len(cascade.ledger) for cascade in cascades),
        "open": sum(len(cascade.ledger.open) for cascade in cascades),
    }
    return shown("overview.html", "Cascades", **{**counts, **values})


class ParsedPage(Reader):
    """A parsed page, with spaces between the pieces of its text."""

    def __init__(self, page: str) -> None:
        super().__init__(page)
        self.text = " ".join(self.text.replace("\xa0", " ").split())

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"

    def values(self, attribute: str) -> list[str]:
        return [
            str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes
        ]
