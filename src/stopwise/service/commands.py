"""Requests on their way to happen: each is called by the writer when its turn has come."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.service import events as codec
from stopwise.service import spec as specs
from stopwise.service.events import Created, Retired
from stopwise.service.learner import AS_ROUND
from stopwise.service.messages import (
    CascadeSpec,
    DecisionAnswer,
    LabelAnswer,
)
from stopwise.service.outputs import canonical
from stopwise.service.refusals import Refusal
from stopwise.service.state import State
from stopwise.service.writer import Happening

Rows = NDArray[np.float64]
Answers = tuple[list[DecisionAnswer], bool]


class Create:
    """Make a cascade."""

    def __init__(
        self,
        spec: CascadeSpec,
        key: str | None,
        *,
        max_context: int,
        max_features: int,
        max_cascades: int,
        max_tables: int,
    ) -> None:
        # As the log will have it: a cost of 0 is 0.0 there.
        self.spec = spec = msgspec.convert(msgspec.to_builtins(spec), CascadeSpec)
        self.key = key
        self.max_cascades = max_cascades
        self.max_tables = max_tables  # megabytes
        policy = specs.build(spec, max_context=max_context, max_features=max_features)
        self._bytes = specs.table_bytes(policy)
        try:
            codec.encode([Created(spec, 0.0, key)])
        except (OverflowError, UnicodeEncodeError) as error:
            raise Refusal(422, "invalid", f"this cascade cannot be written down: {error}") from None

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        spec, key = self.spec, self.key
        if key is not None and state.keys.get(key, spec.name) != spec.name:
            raise Refusal(
                409,
                "conflict",
                "this Idempotency-Key was used for another cascade; use a new key for a new one",
            )
        existing = state.cascades.get(spec.name)
        if existing is not None:
            if existing.spec != spec:
                raise Refusal(
                    409,
                    "conflict",
                    f"a cascade called {spec.name!r} exists and is another one. A cascade cannot "
                    "be changed, since what was learned belongs to its arms and costs: give the "
                    "new one another name",
                    field="name",
                )
            return None, (existing.view(), False)
        if len(state.order) >= self.max_cascades:
            raise Refusal(
                409, "conflict", f"this service keeps {self.max_cascades:,} cascades at most"
            )
        there = sum(specs.table_bytes(learner.policy) for learner in state.order)
        if there + self._bytes > self.max_tables << 20:
            raise Refusal(
                409,
                "conflict",
                f"the tables of all cascades would take more than {self.max_tables:,} MB "
                "(max_tables): use fewer features or arms",
                field="features",
            )
        event = Created(spec, time, key)
        state.happen(event, state.position + 1)
        return event, (state.cascades[spec.name].view(), True)


class Retire:
    """Let a cascade decide no more."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.learner(self.name)
        if learner.status == "retired":
            return None, learner.view()
        learner.status = "retired"
        return Retired(learner.index, time), learner.view()


class Decide:
    """Decide, once or for a batch.

    The answer is (decisions, whether they are new): a list of `DecisionAnswer` with evidence, or
    with ``quick`` and without evidence the JSON of them all, with commas between.
    """

    __slots__ = ("contexts", "each", "key", "name", "quick")

    def __init__(
        self,
        name: str,
        contexts: list[list[float] | dict[str, float]],
        key: str | None,
        each: bool,
        quick: bool = False,
    ) -> None:
        self.name = name
        self.contexts = contexts
        self.key = key
        self.each = each  # whether to tell why of each
        self.quick = quick and not each

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.cascades.get(self.name) or state.learner(self.name)
        contexts = self.contexts
        if self.quick and len(contexts) == 1 and type(context := contexts[0]) is list:
            return learner.decide_one(context, time, self.key, state.position + 1)
        rows = learner.rows(contexts)
        if self.key is not None:
            known = learner.repeated(self.key, rows.tobytes())
            if known is not None:
                told = learner.texts(*known) if self.quick else learner.answers(*known)
                return None, (told, False)
        event, decisions = learner.decide(rows, time, self.key, state.position + 1, each=self.each)
        if self.quick:
            return event, (learner.texts(event.first, len(rows)), True)
        answers = learner.answers(event.first, len(rows), decisions if self.each else None)
        return event, (answers, True)


class Tell:
    """Tell what arms said."""

    __slots__ = ("final", "id", "name", "outputs")

    def __init__(
        self, name: str, id_: str, outputs: list[object] | dict[str, object], final: bool
    ) -> None:
        self.name = name
        self.id = id_
        self.outputs = outputs
        self.final = final

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.learner(self.name)
        number = learner.ledger.number(self.id)
        given: dict[int, bytes] = {}
        if isinstance(self.outputs, list):
            if len(self.outputs) > learner.cascade.n_arms:
                raise Refusal(
                    422,
                    "invalid",
                    f"{len(self.outputs)} outputs for a cascade of {learner.cascade.n_arms} arms",
                    field="outputs",
                )
            for arm, value in enumerate(self.outputs):
                if value is not None:
                    given[arm] = canonical(value, f"outputs[{arm}]")
        else:
            arms = learner.cascade.names
            for name, value in self.outputs.items():
                if name not in arms:
                    raise Refusal(
                        422,
                        "invalid",
                        f"no arm is called {name[:80]!r}; the arms are {', '.join(arms)}",
                        field="outputs",
                    )
                if value is not None:
                    given[arms.index(name)] = canonical(value, f"outputs.{name}")
        return learner.tell(number, given, final=self.final, time=time, position=state.position + 1)


class Label:
    """Tell the right answer of a round, which was looked up in the log."""

    def __init__(
        self, name: str, number: int, label: bytes, context: bytes, outputs: list[bytes]
    ) -> None:
        self.name = name
        self.number = number
        self.label = label
        self.context = context
        self.outputs = outputs

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.learner(self.name)
        event = learner.label(
            self.number, self.label, self.context, self.outputs, time, state.position + 1
        )
        answer = LabelAnswer(
            learner.ledger.id(self.number), len(learner.ledger.labels), event is None
        )
        return event, answer


class StartRound:
    """Begin a round that is decided step by step."""

    def __init__(self, name: str, context: list[float], key: str | None) -> None:
        self.name = name
        self.context = context
        self.key = key

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen; the answer is (where the round stands, whether it is new)."""
        learner = state.learner(self.name)
        row = np.array(self.context, dtype=np.float64)
        if self.key is not None:
            known = learner.repeated(self.key, AS_ROUND + row.tobytes())
            if known is not None:
                return None, (learner.standing(known[0]), False)
        event, answer = learner.start(row, time, self.key, state.position + 1)
        return event, (answer, True)


class Step:
    """Tell what an arm of such a round said."""

    def __init__(
        self, name: str, id_: str, arm: int, output: object, revealed: list[float]
    ) -> None:
        self.name = name
        self.id = id_
        self.arm = arm
        self.output = canonical(output, "output")
        self.revealed = np.array(revealed, dtype=np.float64)

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.learner(self.name)
        number = learner.ledger.number(self.id, "round")
        return learner.step(number, self.arm, self.output, self.revealed, time, state.position + 1)


class EndRound:
    """End such a round early: a stage failed."""

    def __init__(self, name: str, id_: str) -> None:
        self.name = name
        self.id = id_

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        learner = state.learner(self.name)
        number = learner.ledger.number(self.id, "round")
        return learner.end(number, time, state.position + 1)
