"""One cascade of the service: its policy, its decisions, and what happens to them.

Whatever changes here is an event, and happens the same way whether it is being asked for now or
read from the log: a method named by a verb checks a request and makes the event; the method named
by its participle lets the event happen. Checks come first: a refused request changes nothing.
"""

import re
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import AuditNotSupportedError, StopwiseError
from stopwise.policies.base import Policy
from stopwise.policies.contextual import Contextual
from stopwise.policies.descent import Descent
from stopwise.records import Decision, PairEvidence, Round
from stopwise.service import spec as specs
from stopwise.service.events import Decided, Ended, Labelled, Started, Stepped, Told
from stopwise.service.ledger import EXPIRED, LEARNED, NAMES, OPEN, STEPPED, Ledger
from stopwise.service.messages import (
    CascadeSpec,
    CascadeView,
    DecisionAnswer,
    Evidence,
    OutputsAnswer,
    RoundAnswer,
)
from stopwise.service.outputs import fingerprint
from stopwise.service.refusals import Refusal
from stopwise.service.tally import Tally

Rows = NDArray[np.float64]
KEEP_RECENT = 50
ARM_BYTES = [bytes([arm]) for arm in range(16)]
AS_ROUND = b"round "  # tells the request for a round from that for a decision, by its digest


class Recent:
    """A decision taken lately, with why; reading it changes nothing.

    Attributes
    ----------
    number : int
        Of the decision; `id` is its name.
    time : float
        When it was taken, in seconds since 1970.
    stop : int
        Where it stops.
    cost : float
        Of all arms up to there.
    """

    __slots__ = ("_ledger", "_said", "cost", "number", "stop", "time")

    def __init__(
        self,
        ledger: Ledger,
        number: int,
        time: float,
        stop: int,
        cost: float,
        said: Decision | str,
    ) -> None:
        self._ledger = ledger
        self.number = number
        self.time = time
        self.stop = stop
        self.cost = cost
        self._said = said

    @property
    def id(self) -> str:
        """Its name in the API."""
        return self._ledger.id(self.number)

    def words(self) -> str:
        """Say why, in a sentence."""
        return self._said if isinstance(self._said, str) else str(as_decided(self._said))

    def evidence(self) -> tuple[PairEvidence, ...]:
        """Return the comparisons it rested on; none if it came from a snapshot or a batch."""
        return () if isinstance(self._said, str) else as_decided(self._said).evidence


def as_decided(decision: Decision) -> Decision:
    """Return a decision whose evidence is what it was proved on: no pass over history."""
    return msgspec.structs.replace(decision, round=-1)


class Learner:
    """A cascade at work.

    Parameters
    ----------
    index : int
        Its number in the order of creation.
    spec : CascadeSpec
        What it was made of.
    created : float
        When.
    policy : Policy, optional
        What it has learned, if it comes from a snapshot.
    """

    def __init__(
        self, index: int, spec: CascadeSpec, created: float, policy: Policy | None = None
    ) -> None:
        self.index = index
        self.spec = spec
        self.created = created
        self.status: Literal["active", "retired"] = "active"
        self.policy = specs.build(spec) if policy is None else policy
        self.cascade = self.policy.cascade
        self.ledger = Ledger(spec.name, self.cascade.n_arms, spec.keep_open)
        self.tally = Tally.blank(self.cascade.n_arms)
        self.recent: deque[Recent] = deque(maxlen=KEEP_RECENT)
        self.divergences = 0  # decisions that this machine would have taken otherwise
        self.staged = specs.staged(self.policy)
        self._size = specs.context_size(spec)
        self._shape = (self._size,)
        self._places = {name: k for k, name in enumerate(specs.context_names(spec) or ())}
        self._contextual = isinstance(self.policy, Contextual)  # checks contexts itself
        self._costs = cast(list[float], self.cascade.cumulative.tolist())
        self._arms = self.cascade.names
        # How the JSON of a decision that stops at an arm goes on after its id.
        self._tails = [
            msgspec.json.encode(DecisionAnswer("", k, arm, cost)).decode().removeprefix('{"id":"')
            for k, (arm, cost) in enumerate(zip(self._arms, self._costs, strict=True))
        ]

    # -- deciding -----------------------------------------------------------------------------

    def rows(self, contexts: list[list[float] | dict[str, float]]) -> Rows:
        """Return contexts as a table of numbers in order, or refuse the first that is none."""
        try:  # mostly every one is a list, and all have the right length
            rows = np.array(contexts, dtype=np.float64)
            if rows.shape == (len(contexts), self._size):
                return rows
        except (TypeError, ValueError):
            pass
        single = len(contexts) == 1
        return np.array(
            [
                self._row(context, "context" if single else f"contexts[{k}]")
                for k, context in enumerate(contexts)
            ],
            dtype=np.float64,
        )

    def _row(self, context: list[float] | dict[str, float], field: str) -> list[float]:
        if isinstance(context, dict):
            context = self._ordered(context, field)
        if len(context) != self._size:
            raise Refusal(
                422,
                "invalid",
                f"{field} has {len(context)} numbers; this cascade's contexts have {self._size}",
                field=field,
            )
        return context

    def _ordered(self, context: Mapping[str, float], field: str) -> list[float]:
        if not self._places:
            raise Refusal(
                422,
                "invalid",
                f"{field}: this cascade's context has no names; give a list of numbers",
                field=field,
            )
        missing = [name for name in self._places if name not in context]
        extra = [name for name in context if name not in self._places]
        if missing or extra:
            told = [f"missing: {', '.join(missing)}"] if missing else []
            told += [f"unknown: {', '.join(extra)}"] if extra else []
            raise Refusal(422, "invalid", f"{field}: {'; '.join(told)}", field=field)
        return [context[name] for name in self._places]

    def decide(
        self, rows: Rows, time: float, key: str | None, position: int, *, each: bool = False
    ) -> tuple[Decided, list[Decision] | None]:
        """Decide for contexts that `rows` has made; return what happened.

        With ``each``, or for a single one, the decisions themselves are returned too: they know
        why.
        """
        self._check_active()
        if self.staged:
            raise Refusal(
                409,
                "conflict",
                "stages of this cascade reveal its context, so it decides step by step: "
                "POST …/rounds instead",
            )
        try:
            if not self._contextual:
                self._check_finite(rows)
            if each or len(rows) == 1:
                if isinstance(self.policy, Contextual) and len(rows) > 1:
                    self.policy.features.rows(rows)  # all are checked before any is decided
                decisions = [self.policy.decide(x) for x in rows]
                stops = [decision.stop for decision in decisions]
                wanted = [decision.wanted for decision in decisions]
            else:
                decisions = None
                stops, wanted = (a.tolist() for a in self.policy.decide_batch(rows))
        except StopwiseError as error:
            raise self._refused_context(error) from None
        event = Decided(
            self.index,
            len(self.ledger),
            rows.tobytes(),
            bytes(stops),
            b"" if stops == wanted else bytes(wanted),
            time,
            key,
        )
        self._decided(event, stops, wanted, decisions, position)
        return event, decisions

    def decide_one(
        self, context: list[float], time: float, key: str | None, position: int
    ) -> tuple[Decided | None, tuple[str, bool]]:
        """Decide for one context and return the answer as JSON: `decide` without its detours.

        Most requests are of this kind, and half of their time would be spent on generality.
        """
        x = np.array(context, dtype=np.float64)
        if x.shape != self._shape or self.staged or self.status == "retired":
            self.decide(self.rows([context]), time, key, position)  # says what is wrong
        if key is not None:
            known = self.repeated(key, x.tobytes())
            if known is not None:
                return None, (self.texts(*known), False)
        if not self._contextual:
            self._check_finite(x)
        try:
            decision = self.policy.decide(x)
        except StopwiseError as error:
            raise self._refused_context(error) from None
        stop, wanted = decision.stop, decision.wanted
        ledger = self.ledger
        number = len(ledger.status)
        contexts = x.tobytes()
        as_bytes = ARM_BYTES
        wish = b"" if wanted == stop else as_bytes[wanted]
        event = Decided(self.index, number, contexts, as_bytes[stop], wish, time, key)
        ledger.add_one(contexts, stop, wanted, position)
        self.tally.decided_one(time, stop)
        if key is not None:
            ledger.remember(key, number, 1, digest(contexts))
        self.recent.append(Recent(ledger, number, time, stop, self._costs[stop], decision))
        return event, (ledger.opening(number) + self._tails[stop], True)

    def decided(self, event: Decided, position: int) -> None:
        """Let recorded decisions happen."""
        rows = np.frombuffer(event.contexts).reshape(-1, self._size).copy()
        stops = list(event.stops)
        wanted = list(event.wanted) if event.wanted else stops
        if len(stops) == 1:
            decisions = [self.policy.decide(rows[0])]
            here = [decisions[0].stop]
        else:
            decisions = None
            here = cast(list[int], self.policy.decide_batch(rows)[0].tolist())
        if here != stops:  # another machine's rounding: what was answered is what counts
            self.divergences += sum(a != b for a, b in zip(here, stops, strict=True))
        self._decided(event, stops, wanted, decisions, position)

    def _decided(
        self,
        event: Decided,
        stops: list[int],
        wanted: list[int],
        decisions: list[Decision] | None,
        position: int,
    ) -> None:
        ledger = self.ledger
        if len(stops) == 1:
            ledger.add_one(event.contexts, stops[0], wanted[0], position)
        else:
            ledger.add(event.contexts, stops, wanted, position)
        self.tally.decided(event.time, stops)
        if event.key is not None:
            ledger.remember(event.key, event.first, len(stops), digest(event.contexts))
        if decisions is None:  # of a batch the last one stands for all
            said = f"The last of a batch of {len(stops):,}; ask with evidence to be told why."
            self._noted(event.first + len(stops) - 1, event.time, stops[-1], said)
        else:
            for k, decision in enumerate(decisions):
                self._noted(event.first + k, event.time, stops[k], decision)

    def _noted(self, number: int, time: float, stop: int, said: Decision | str) -> None:
        self.recent.append(Recent(self.ledger, number, time, stop, self._costs[stop], said))

    def answers(
        self, first: int, count: int, decisions: list[Decision] | None = None
    ) -> list[DecisionAnswer]:
        """Return decisions as they are answered, with evidence where decisions are given."""
        ledger, arms, costs = self.ledger, self._arms, self._costs
        stops = ledger.stops
        if decisions is None:
            return [
                DecisionAnswer(ledger.id(n), stops[n], arms[stops[n]], costs[stops[n]])
                for n in range(first, first + count)
            ]
        told: list[DecisionAnswer] = []
        for n, decision in zip(range(first, first + count), decisions, strict=True):
            proved = as_decided(decision)
            evidence = [
                Evidence(
                    arms[e.first],
                    arms[e.second],
                    e.gap,
                    e.disagreement,
                    e.disagreement_ucb,
                    e.gap_won,
                )
                for e in proved.evidence
            ]
            told.append(
                DecisionAnswer(
                    ledger.id(n),
                    stops[n],
                    arms[stops[n]],
                    costs[stops[n]],
                    str(proved),
                    evidence,
                )
            )
        return told

    def texts(self, first: int, count: int) -> str:
        """Return decisions as JSON, with commas between: `answers` without evidence, but faster.

        Of the time that a batch takes, making its answers would be the larger part.
        """
        ledger, tails = self.ledger, self._tails
        if count == 1:
            return ledger.opening(first) + tails[ledger.stops[first]]
        return ",".join(ledger.texts(first, first + count, tails))

    def repeated(self, key: str, contexts: bytes) -> tuple[int, int] | None:
        """Return the decisions that an Idempotency-Key has made; None if it is new."""
        known = self.ledger.keys.get(key)
        if known is None:
            return None
        if known.contexts != digest(contexts):
            raise Refusal(
                409,
                "conflict",
                "this Idempotency-Key was used for another request; use a new key for a new one",
            )
        return known.first, known.count

    # -- outputs ------------------------------------------------------------------------------

    def tell(
        self, number: int, given: dict[int, bytes], *, final: bool, time: float, position: int
    ) -> tuple[Told | None, OutputsAnswer]:
        """Take what arms said; return what happened (None: nothing new) and the answer."""
        ledger = self.ledger
        if ledger.status[number] & STEPPED:
            raise Refusal(
                409, "conflict", "this is a round taken step by step: POST …/rounds/{id}/steps"
            )
        new = self._new(number, given)
        state = ledger.state_of(number)
        if state == EXPIRED and new:
            raise _expired(self.spec.keep_open)
        if state != OPEN or (not new and not final):
            if state == LEARNED and new and not (final and self._beyond_hole(number, new)):
                raise Refusal(
                    409,
                    "conflict",
                    "the round has ended and was learned without these arms: "
                    f"{', '.join(self._arms[arm] for arm in new)}",
                )
            return None, self._told_answer(number, repeated=True)
        known = {**ledger.partial.get(number, {}), **new}
        stop = ledger.stops[number]
        reached = next((arm for arm in range(stop + 1) if arm not in known), stop + 1)
        ended = final or reached > stop
        arms = list(range(reached)) if ended else sorted(new)
        event = Told(self.index, number, arms, [known[arm] for arm in arms], ended, time)
        self.told(event, position)
        return event, self._told_answer(number, repeated=False)

    def _beyond_hole(self, number: int, new: dict[int, bytes]) -> bool:
        """Say whether outputs come after one that is missing: such are left out at the end.

        Whoever repeats what ended the round sends them again, and must not be refused for it.
        """
        ledger = self.ledger
        return all(
            any(ledger.print_of(number, before) == 0 and before not in new for before in range(arm))
            for arm in new
        )

    def _new(self, number: int, given: dict[int, bytes]) -> dict[int, bytes]:
        """Return the outputs not told before; refuse those that contradict what was told."""
        ledger = self.ledger
        stop = ledger.stops[number]
        new: dict[int, bytes] = {}
        for arm, output in given.items():
            if arm > stop:
                raise Refusal(
                    409,
                    "conflict",
                    f"this decision stops at {self._arms[stop]!r}: {self._arms[arm]!r} was not to "
                    "run, and nothing may be learned from it",
                    field="outputs",
                )
            before = ledger.print_of(number, arm)
            if before == 0:
                new[arm] = output
            elif before != fingerprint(output):
                raise Refusal(
                    409,
                    "conflict",
                    f"another output of {self._arms[arm]!r} was told before; the first one stays",
                    field="outputs",
                )
        return new

    def told(self, event: Told, position: int) -> None:
        """Let recorded outputs happen."""
        ledger, number = self.ledger, event.number
        for arm, output in zip(event.arms, event.outputs, strict=True):
            ledger.stamp(number, arm, fingerprint(output))
        if not event.ended:
            partial = ledger.partial.setdefault(number, {})
            partial.update(zip(event.arms, event.outputs, strict=True))
            return
        if event.outputs:
            context = cast(bytes, ledger.open[number])
            self.policy.observe(np.frombuffer(context), event.outputs, wanted=ledger.wanted[number])
            self.tally.told(event.time, event.outputs)
        ledger.end(number, position)

    def _told_answer(self, number: int, *, repeated: bool) -> OutputsAnswer:
        ledger = self.ledger
        state = ledger.state_of(number)
        missing = [
            self._arms[arm]
            for arm in range(ledger.stops[number] + 1)
            if state == OPEN and ledger.print_of(number, arm) == 0
        ]
        return OutputsAnswer(ledger.id(number), NAMES[state], missing, repeated)

    # -- rounds step by step --------------------------------------------------------------------

    def start(
        self, context: Rows, time: float, key: str | None, position: int
    ) -> tuple[Started, RoundAnswer]:
        """Begin a round; return what happened and the answer."""
        self._check_active()
        if not self.staged and len(context) != self._size:
            self._row(cast(list[float], context.tolist()), "context")
        event = Started(self.index, len(self.ledger), context.tobytes(), time, key)
        try:
            if not self._contextual:
                self._check_finite(context)
            self.started(event, position)
        except StopwiseError as error:
            raise self._refused_context(error) from None
        return event, self.standing(event.number)

    def started(self, event: Started, position: int) -> None:
        """Let the recorded start of a round happen."""
        descent = self.policy.start(np.frombuffer(event.context).copy())
        descent.next()  # always the first arm
        number = self.ledger.start(descent, position)
        if event.key is not None:
            self.ledger.remember(event.key, number, 1, digest(AS_ROUND + event.context))

    def step(
        self, number: int, arm: int, output: bytes, revealed: Rows, time: float, position: int
    ) -> tuple[Stepped | None, RoundAnswer]:
        """Take what the next arm said; return what happened (None: nothing new), the answer."""
        ledger = self.ledger
        self._check_stepped(number)
        if arm >= self.cascade.n_arms:
            raise Refusal(422, "invalid", f"arms are 0 to {self.cascade.n_arms - 1}", field="arm")
        before = ledger.print_of(number, arm)
        if before:
            if before != step_print(output, revealed):
                raise Refusal(409, "conflict", f"{self._arms[arm]!r} said something else before")
            return None, self.standing(number)
        descent = self._descent(number)
        if arm != len(descent.outputs):
            raise Refusal(
                409,
                "conflict",
                f"arm {len(descent.outputs)} ({self._arms[len(descent.outputs)]}) is next, not "
                f"{arm}",
                field="arm",
            )
        try:
            descent.give(output, revealed.tolist())
        except StopwiseError as error:
            raise Refusal(422, "invalid", str(error), field="revealed") from None
        ended = descent.next() is None
        event = Stepped(self.index, number, arm, output, revealed.tobytes(), ended, time)
        if ended:
            context, outputs = _whole(descent)
            event = msgspec.structs.replace(event, context=context, outputs=outputs)
        self._stepped(event, descent, revealed, position)
        return event, self.standing(number)

    def stepped(self, event: Stepped, position: int) -> None:
        """Let a recorded step happen."""
        descent = cast(Descent, self.ledger.open[event.number])
        revealed = np.frombuffer(event.revealed)
        descent.give(event.output, revealed.tolist())
        if (descent.next() is None) is not event.ended:
            self.divergences += 1
            descent.follow(event.ended)
        self._stepped(event, descent, revealed, position)

    def _stepped(self, event: Stepped, descent: Descent, revealed: Rows, position: int) -> None:
        self.ledger.stamp(event.number, event.arm, step_print(event.output, revealed))
        if event.ended:
            self._end(event.number, descent, event.time, position)

    def end(self, number: int, time: float, position: int) -> tuple[Ended | None, RoundAnswer]:
        """End a round early; return what happened (None: it has ended already), the answer."""
        self._check_stepped(number)
        if self.ledger.state_of(number) == LEARNED:
            return None, self.standing(number)
        event = Ended(self.index, number, time, *_whole(self._descent(number)))
        self.ended(event, position)
        return event, self.standing(number)

    def ended(self, event: Ended, position: int) -> None:
        """Let a recorded end happen."""
        descent = cast(Descent, self.ledger.open[event.number])
        self._end(event.number, descent, event.time, position)

    def _end(self, number: int, descent: Descent, time: float, position: int) -> None:
        ledger = self.ledger
        stop = len(descent.outputs) - 1
        ledger.stops[number] = stop
        ledger.wanted[number] = descent.wanted
        descent.learn()
        ledger.end(number, position)
        if stop >= 0:
            self.tally.decided(time, [stop])
            self.tally.told(time, cast(list[bytes], descent.outputs))
            said = descent.decision or "It ended early: a stage failed."
            self._noted(number, time, stop, said)

    def standing(self, number: int) -> RoundAnswer:
        """Say where a round stands."""
        ledger = self.ledger
        self._check_stepped(number)
        state = ledger.state_of(number)
        told = sum(ledger.print_of(number, arm) != 0 for arm in range(self.cascade.n_arms))
        going = state == OPEN
        arm = told if going else told - 1
        return RoundAnswer(
            ledger.id(number),
            NAMES[state],
            told if going else None,
            self._arms[arm] if arm >= 0 else None,
            None if going or told == 0 else told - 1,
            self._costs[told - 1] if told else 0.0,
        )

    def _descent(self, number: int) -> Descent:
        if self.ledger.state_of(number) == EXPIRED:
            raise _expired(self.spec.keep_open)
        descent = self.ledger.open.get(number)
        if not isinstance(descent, Descent):
            raise Refusal(409, "conflict", "this round has ended")
        return descent

    def _check_stepped(self, number: int) -> None:
        if not self.ledger.status[number] & STEPPED:
            raise Refusal(
                404, "unknown_round", "this is a decision, not a round taken step by step"
            )

    # -- labels -------------------------------------------------------------------------------

    def label(
        self,
        number: int,
        label: bytes,
        context: bytes,
        outputs: list[bytes],
        time: float,
        position: int,
    ) -> Labelled | None:
        """Take the right answer of a round; return what happened (None: nothing new)."""
        before = self.ledger.labels.get(number)
        if before is not None:
            if before != fingerprint(label):
                raise Refusal(409, "conflict", "another label was told before; the first one stays")
            return None
        wanted = self.ledger.wanted[number]
        event = Labelled(self.index, number, label, context, outputs, wanted, time)
        try:
            self.labelled(event, position)
        except AuditNotSupportedError as error:
            raise Refusal(409, "conflict", str(error)) from None
        return event

    def labelled(self, event: Labelled, position: int) -> None:
        """Let a recorded label happen."""
        del position
        context = tuple(np.frombuffer(event.context).tolist())
        outputs = tuple(event.outputs)
        done = Round("", 0.0, context, outputs, outputs, len(outputs) - 1, event.wanted)
        self.policy.audit(done, event.label)
        self.ledger.labels[event.number] = fingerprint(event.label)
        self.tally.labels_total += 1

    # -- looking ------------------------------------------------------------------------------

    def view(self) -> CascadeView:
        """Return the cascade as the API shows it."""
        stops = list(self.tally.stops_total)
        n = sum(stops)
        return CascadeView(
            spec=self.spec,
            status=self.status,
            created=self.created,
            n_features=specs.n_features(self.policy),
            decisions=len(self.ledger),
            open=len(self.ledger.open),
            learned=self.ledger.learned,
            audited=len(self.ledger.labels),
            stops=stops,
            mean_cost=float(np.dot(stops, self._costs)) / n if n else None,
        )

    def _refused_context(self, error: StopwiseError) -> Refusal:
        """Word what the policy says of a context for somebody who never saw its Python."""
        names = tuple(self._places)
        said = re.sub(
            r"coordinate (\d+)",
            lambda found: repr(names[int(found[1])]) if names else f"number {found[1]}",
            str(error),
        )
        said, _, advice = said.partition("; give the feature map")
        if advice:
            said += (
                ". A cascade's features promise a range: make one with a larger bound, such as "
                '"features": {"kind": "polynomial", "degree": 1, "bound": 100}'
            )
        return Refusal(422, "invalid", said, field="context")

    def _check_finite(self, rows: Rows) -> None:
        if not np.isfinite(rows).all():
            raise Refusal(422, "invalid", "a context must be finite numbers", field="context")

    def _check_active(self) -> None:
        if self.status == "retired":
            raise Refusal(
                409, "retired", f"the cascade {self.spec.name!r} is retired and decides no more"
            )


def digest(contexts: bytes) -> bytes:
    """Return what stands for the contexts of a request, to know it again.

    Examples
    --------
    >>> digest(b"some") == digest(b"some")
    True
    """
    return blake2b(contexts, digest_size=8).digest()


def step_print(output: bytes, revealed: Rows) -> int:
    """Return the fingerprint of an arm's output and of what it revealed."""
    return fingerprint(output + b" " + revealed.tobytes() if len(revealed) else output)


def _whole(descent: Descent) -> tuple[bytes, list[bytes]]:
    """Return all that is known of a round at its end: the context, and what arms said."""
    return np.array(descent.context).tobytes(), cast(list[bytes], list(descent.outputs))


def _expired(keep_open: int) -> Refusal:
    return Refusal(
        410,
        "gone",
        f"this decision waited too long: {keep_open:,} newer ones were waiting, and this cascade "
        "keeps no more (keep_open)",
    )
