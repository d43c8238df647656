"""One cascade of the service: its policy, its rounds, and the events that change them.

`open`, `report` and `label` check a request, create its event and apply it; `opened`, `reported`
and `labelled` apply a recorded one. Checks come first: a refused request changes nothing.
"""

from collections import deque
from collections.abc import Sequence
from typing import Literal, cast

import msgspec
import numpy as np

from stopwise.arrays import Floats
from stopwise.errors import LabelsNotSupportedError, StopwiseError
from stopwise.policies import batch
from stopwise.policies.labels import observation_of
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.protocol import Policy
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import Change, Decision, Label, LabelCounts, PairEvidence
from stopwise.service.domain import spec as specs
from stopwise.service.domain.contexts import ContextParser, Contexts
from stopwise.service.domain.counts import Counts
from stopwise.service.domain.errors import CascadeRetired, Conflict, InvalidRequest, RoundGone
from stopwise.service.domain.events import Labelled, Opened, Reported
from stopwise.service.domain.ledger import EXPIRED, LEARNED, NAMES, OPEN, KeyedRequest, Ledger
from stopwise.service.domain.messages import CascadeSpec, CascadeView, Evidence, RoundAnswer
from stopwise.service.domain.outputs import StoredAnswer, canonical, fingerprint, pack_answers
from stopwise.service.server_log import LOG
from stopwise.text import shorten

KEEP_RECENT = 50
EVIDENCE_WORK = 1e5  # of explaining one decision, in multiplications


class RecentDecision(msgspec.Struct, frozen=True):
    """A round that was decided lately, with the reason; reading it changes nothing."""

    ledger: Ledger
    number: int
    time: float
    stop: int
    cost: float
    reason: Decision | str

    @property
    def id(self) -> str:
        """Its name in the API."""
        return self.ledger.id(self.number)

    def explanation(self) -> str:
        """Return the reason in a sentence."""
        return self.reason if isinstance(self.reason, str) else str(as_decided(self.reason))

    def evidence(self) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind it; none if it came from a snapshot or a batch."""
        return () if isinstance(self.reason, str) else as_decided(self.reason).evidence


def as_decided(decision: Decision) -> Decision:
    """Return a decision whose evidence is that of its proof: no pass over history."""
    return msgspec.structs.replace(decision, exact_evidence=False)


class ServedCascade:
    """One cascade, the ``index``-th created: policy, rounds, counts."""

    def __init__(
        self, index: int, spec: CascadeSpec, created: float, policy: Policy | None = None
    ) -> None:
        self.index = index
        self.spec = spec
        self.created = created
        self.status: Literal["active", "retired"] = "active"
        self.policy = specs.build(spec) if policy is None else policy
        self.arms = self.policy.cascade  # with their costs
        self.ledger = Ledger(spec.name, self.arms.n_arms, spec.keep_open)
        self.counts = Counts.blank(self.arms.n_arms)
        self.recent: deque[RecentDecision] = deque(maxlen=KEEP_RECENT)
        self.divergences = 0  # decisions that differ on this machine
        self.staged = self.policy.reveals is not None  # stages reveal the context
        self.contexts = ContextParser(spec, self.policy)
        self._costs = cast(list[float], self.arms.cumulative.tolist())
        self._names = self.arms.names
        self._time, self._live = created, False  # of the outputs that are being learned
        if isinstance(self.policy, PairwisePolicy):
            self.policy.watch(self._changed)

    def work(self, rounds: int, *, evidence: bool = False) -> float:
        """Return the most multiplications that a request may take: a pass over all history."""
        each = float(len(self.arms.pairs()) * self._n_features() ** 2)
        needed = each * (self.ledger.learned + rounds)
        return needed + EVIDENCE_WORK * rounds if evidence else needed

    @property
    def label_counts(self) -> LabelCounts:
        """The labels that the policy has asked for; none if it never does."""
        if isinstance(self.policy, PairwisePolicy):
            return self.policy.labels
        return LabelCounts(asked=0, came=0, missing=0, fixed_depth=None)

    def _n_features(self) -> int:
        """Return how many features the policy has now; they may change in the first rounds."""
        return 0 if self.policy.features is None else self.policy.features.n_features

    # -- open ---------------------------------------------------------------------------------

    def open(
        self,
        contexts: Contexts,
        time: float,
        position: int,
        *,
        evidence: bool = False,
        key: str | None = None,
        digest: bytes = b"",
        complete: bool = False,
    ) -> tuple[Opened | None, list[RoundAnswer]]:
        """Open rounds; return the event (None: the key was used before) and the answers."""
        if (
            key is not None
            and (known := self.ledger.idempotency_keys.find(key, digest)) is not None
        ):
            numbers = range(known.first, known.first + known.count)
            return None, [self.answer(number) for number in numbers]
        if self.status == "retired":
            raise CascadeRetired(self.spec.name)
        if len(contexts) > self.spec.keep_open:
            words = f"{len(contexts):,} rounds, and {self.spec.keep_open:,} may be open (keep_open)"
            raise InvalidRequest(words, field="contexts")
        if self.staged and len(contexts) != 1:
            raise Conflict("stages of this cascade reveal its context: open its rounds one by one")
        if complete and not self.staged:
            words = "complete is for cascades whose stages reveal the context; run the arms to stop"
            raise InvalidRequest(words, field="complete")
        decisions, stops, rule_stops = None, list[int](), list[int]()
        try:
            rows = self.contexts.rows(contexts)
            if self.staged:
                started = self._start(rows[0], complete)
                waiting: Sequence[bytes | RoundInProgress] = [started]
            else:
                if evidence and len(rows) > 1 and self.policy.features is not None:
                    self.policy.features.rows(rows)  # all are checked before any is decided
                decisions, stops, rule_stops = self._decide(rows, one_by_one=evidence)
                waiting = [x.tobytes() for x in rows]  # none holds a batch in memory
        except StopwiseError as error:
            raise self.contexts.invalid(error) from None
        first, other = len(self.ledger), b"" if stops == rule_stops else bytes(rule_stops)
        decided = (len(waiting), rows.tobytes(), bytes(stops), other)
        event = Opened(self.index, first, *decided, time, key, digest, complete)
        self._add(event, waiting, decisions, position)
        reasons = (decisions if evidence else None) or [None] * event.count
        return event, [self.answer(event.first + k, reason=one) for k, one in enumerate(reasons)]

    def apply_opened(self, event: Opened, position: int) -> None:
        """Apply a recorded opening."""
        rows = np.frombuffer(event.contexts).reshape(event.count, -1).copy()
        if self.staged:
            self._add(event, [self._start(rows[0], event.complete)], None, position)
            return
        decisions, stops, _ = self._decide(rows)
        # Another machine's rounding may differ: the answer that was given counts.
        self.divergences += sum(a != b for a, b in zip(stops, event.stops, strict=True))
        self._add(event, [x.tobytes() for x in rows], decisions, position)

    def _decide(
        self, rows: Floats, *, one_by_one: bool = False
    ) -> tuple[list[Decision] | None, list[int], list[int]]:
        """Return decisions (None: decided as a batch), stops and stops of the rule."""
        if one_by_one or len(rows) == 1:
            decisions = [self.policy.decide(x) for x in rows]
            return decisions, [one.stop for one in decisions], [one.rule_stop for one in decisions]
        stops, rule_stops = batch.decide_batch(self.policy, rows)
        return None, cast(list[int], stops.tolist()), cast(list[int], rule_stops.tolist())

    def _add(
        self,
        event: Opened,
        waiting: Sequence[bytes | RoundInProgress],
        decisions: list[Decision] | None,
        position: int,
    ) -> None:
        first, count, stops = event.first, event.count, event.stops
        if event.key is not None:
            self.ledger.idempotency_keys.add(event.key, KeyedRequest(first, count, event.digest))
        self.counts.add_opened(event.time, count)
        if not stops:  # decided later
            self.ledger.add(waiting, [-1], [-1], position)
            return
        self.ledger.add(waiting, stops, event.rule_stops or stops, position)
        self.counts.add_stops(event.time, stops)
        if decisions is None:  # of a batch the last one is shown
            self._note(
                first + count - 1, event.time, stops[-1], f"The last of a batch of {count:,}."
            )
        for k, decision in enumerate(decisions or ()):
            self._note(first + k, event.time, stops[k], decision)

    def _note(self, number: int, time: float, stop: int, reason: Decision | str) -> None:
        cost = self._costs[stop]
        self.recent.append(RecentDecision(self.ledger, number, time, stop, cost, reason))

    def _start(self, row: Floats, complete: bool) -> RoundInProgress:
        started = self.policy.start(row)
        if complete:
            started.run_all()
        started.next()  # always the first arm
        return started

    # -- report -------------------------------------------------------------------------------

    def report(
        self,
        number: int,
        outputs: list[object] | dict[str, object],
        revealed: list[float],
        final: bool,
        time: float,
        position: int,
        answers: Sequence[StoredAnswer] = (),
    ) -> tuple[Reported | None, RoundAnswer]:
        """Add outputs of arms; return the event (None: nothing is new) and the answer.

        ``answers`` are those behind the outputs so far, where a label needs them.
        """
        ledger = self.ledger
        state = ledger.status[ledger.row(number)]
        addition = np.array(revealed, dtype=np.float64)
        new = self._new(number, self._given(outputs), addition)
        if state == EXPIRED and new:
            reason = f"{self.spec.keep_open:,} newer rounds were open (keep_open)"
            raise RoundGone(f"this round was given up: {reason}")
        # A repeat of the request that ended the round may have outputs after the missing one.
        if state == LEARNED and new and not (final and min(new) > ledger.next_arm(number)):
            missing = ", ".join(self._names[arm] for arm in new)
            raise Conflict(f"the round has ended and was learned without these arms: {missing}")
        if state != OPEN or (not new and not final):
            return None, self.answer(number, repeated=True)
        waiting = ledger.open[number]
        if isinstance(waiting, RoundInProgress):
            stopped = bool(new) and self._advance(waiting, new, addition)
            context = np.array(waiting.context).tobytes()
            known = dict(enumerate(cast(list[bytes], waiting.outputs)))
            reached = len(known)
        else:
            known = {**ledger.partial.get(number, {}), **new}
            stop, context = ledger.stops[ledger.row(number)], b""
            reached = next((arm for arm in range(stop + 1) if arm not in known), stop + 1)
            stopped = reached > stop
        ended = stopped or final
        arms = list(range(reached)) if ended else sorted(new)
        given, early = [known[arm] for arm in arms], ended and not stopped
        context = context if ended else b""
        keeps = ended and self.policy.learns_from_labels
        event = Reported(
            self.index,
            number,
            arms,
            given,
            ended,
            time,
            early,
            addition.tobytes(),
            context,
            pack_answers(answers[:reached]) if keeps else b"",
        )
        self._live = True
        self._apply(event, addition, position)
        return event, self.answer(number)

    def apply_reported(self, event: Reported, position: int) -> None:
        """Apply recorded outputs."""
        self._live = False  # a change in them was logged when they were reported
        waiting = self.ledger.open[event.number]
        addition = np.frombuffer(event.revealed)
        if isinstance(waiting, RoundInProgress):
            new = dict(zip(event.arms, event.outputs, strict=True))
            new = {arm: output for arm, output in new.items() if arm >= len(waiting.outputs)}
            stopped = event.ended and not event.early
            if new and self._advance(waiting, new, addition) is not stopped:
                self.divergences += 1
                waiting.follow(stopped)
        self._apply(event, addition, position)

    def _apply(self, event: Reported, revealed: Floats, position: int) -> None:
        ledger, number = self.ledger, event.number
        for arm, output in zip(event.arms, event.outputs, strict=True):
            if ledger.fingerprint(number, arm) == 0:
                ledger.set_fingerprint(number, arm, _fingerprint(output, revealed))
        waiting = ledger.open[number]
        if not event.ended:
            if not isinstance(waiting, RoundInProgress):
                partial = ledger.partial.setdefault(number, {})
                partial.update(zip(event.arms, event.outputs, strict=True))
            return
        request, self._time = None, event.time
        if isinstance(waiting, RoundInProgress):
            stop, row = len(waiting.outputs) - 1, ledger.row(number)
            ledger.stops[row], ledger.rule_stops[row] = stop, waiting.rule_stop
            waiting.learn()
            request = waiting.request
            if stop >= 0:
                self.counts.add_stops(event.time, [stop], early=event.early)
                reason = waiting.decision or "It ended early: a stage failed."
                self._note(number, event.time, stop, reason)
        elif event.outputs:
            rule_stop = ledger.rule_stops[ledger.row(number)]
            x = np.frombuffer(waiting)
            request = self.policy.observe(x, event.outputs, rule_stop=rule_stop)
        if request is not None:
            ledger.add_label_request(number, request)
        if event.outputs:
            self.counts.add_outputs(event.outputs)
        ledger.end(number, position)

    def _changed(self, change: Change) -> None:
        """Note that two arms disagree more, or less, than before."""
        self.counts.changes_total += 1
        self.counts.changes = [*self.counts.changes, (self._time, change)][-KEEP_RECENT:]
        if self._live:
            pair = [self._names[arm] for arm in change.pair]
            fields = {"cascade": self.spec.name, "pair": pair, "rounds": change.noticed}
            fields |= {"before": round(change.before, 4), "after": round(change.after, 4)}
            LOG.warning("disagreement has changed", extra=fields)

    def _advance(self, started: RoundInProgress, new: dict[int, bytes], revealed: Floats) -> bool:
        """Give the output of the next arm to a round; return whether the rule stops there."""
        ((arm, output),) = new.items()
        due = len(started.outputs)
        if arm != due:
            raise Conflict(f"arm {due} ({self._names[due]}) is next, not {arm}", field="outputs")
        try:
            started.give(output, cast(list[float], revealed.tolist()))
        except StopwiseError as error:
            raise self.contexts.invalid(error, field="revealed") from None
        return started.next() is None

    def _given(self, outputs: list[object] | dict[str, object]) -> dict[int, bytes]:
        """Return outputs by arm, in canonical form."""
        arms = self._names
        if isinstance(outputs, list):
            if len(outputs) > len(arms):
                words = f"{len(outputs)} outputs for a cascade of {len(arms)} arms"
                raise InvalidRequest(words, field="outputs")
            outputs = dict(zip(arms, outputs, strict=False))
        if unknown := outputs.keys() - arms:
            words = (
                f"no arm is called {shorten(min(unknown), 80)!r}; the arms are {', '.join(arms)}"
            )
            raise InvalidRequest(words, field="outputs")
        return {
            arm: canonical(outputs[name], f"outputs[{arm}]")
            for arm, name in enumerate(arms)
            if outputs.get(name) is not None
        }

    def _new(self, number: int, given: dict[int, bytes], revealed: Floats) -> dict[int, bytes]:
        """Return outputs not reported before; refuse those that contradict earlier ones."""
        ledger = self.ledger
        if len(revealed) and not self.staged:
            words = "nothing is revealed in this cascade: all of its context is known at the start"
            raise InvalidRequest(words, field="revealed")
        if len(revealed) and len(given) != 1:
            words = "an output comes with what it reveals: report one arm at a time"
            raise InvalidRequest(words, field="revealed")
        if not np.isfinite(revealed).all():
            raise InvalidRequest("what is revealed must be finite numbers", field="revealed")
        last = len(self._names) - 1 if self.staged else ledger.stops[ledger.row(number)]
        new: dict[int, bytes] = {}
        for arm, output in given.items():
            if arm > last:
                words = f"this round stops at {self._names[last]!r}: {self._names[arm]!r} "
                words += "should not have run, and is not learned from"
                raise Conflict(words, field="outputs")
            before = ledger.fingerprint(number, arm)
            if before == 0:
                new[arm] = output
            elif before != _fingerprint(output, revealed):
                words = f"another output of {self._names[arm]!r} was reported before"
                raise Conflict(f"{words}; the first one counts", field="outputs")
        if self.staged and len(new) > 1:
            words = "stages of this cascade reveal its context: report one arm at a time"
            raise Conflict(words, field="outputs")
        return new

    # -- labels -------------------------------------------------------------------------------

    def label(
        self,
        number: int,
        label: bytes,
        context: bytes,
        outputs: list[bytes],
        time: float,
        right: list[bool] | None = None,
    ) -> Labelled | None:
        """Add the label of a round; return the event (None: nothing is new).

        It is the right answer, ``label``, or whether each arm was ``right``.
        """
        before = self.ledger.labels.get(number)
        if before is not None:
            if before != _label_fingerprint(label, right):
                raise Conflict("another label was reported before; the first one counts")
            return None
        rule_stop = self.ledger.rule_stops[self.ledger.row(number)]
        asked = self.ledger.label_requests.get(number)
        if asked is not None and asked.explored == 0:
            rule_stop = len(outputs) - 1  # also if it ran every arm as it was told to
        event = Labelled(self.index, number, label, context, outputs, rule_stop, time, right)
        try:
            self.apply_labelled(event)
        except LabelsNotSupportedError as error:
            raise Conflict(str(error)) from None
        return event

    def apply_labelled(self, event: Labelled) -> None:
        """Apply a recorded label."""
        context, outputs, right = np.frombuffer(event.context), event.outputs, event.right_arms
        observation = observation_of(context, outputs, self.arms.n_arms, event.rule_stop)
        self.policy.learn_label(
            Label(observation, right, self.ledger.label_requests.get(event.number))
        )
        self.ledger.label_requests.pop(event.number, None)
        self.ledger.labels[event.number] = _label_fingerprint(event.label, event.right)
        self.counts.add_label(matched=event.right is not None or any(right))

    # -- views --------------------------------------------------------------------------------

    def answer(
        self, number: int, *, repeated: bool = False, reason: Decision | None = None
    ) -> RoundAnswer:
        """Return the state of a round as the API answers it."""
        ledger, arms, row = self.ledger, self._names, self.ledger.row(number)
        state, stop, due = ledger.status[row], ledger.stops[row], ledger.next_arm(number)
        known_stop = stop if stop >= 0 else None
        next_arm = due if state == OPEN else None
        shown = next_arm if known_stop is None else stop
        last = due - 1 if known_stop is None else stop  # of the arms that the cost counts
        answer = RoundAnswer(
            ledger.id(number),
            NAMES[state],
            "" if shown is None else arms[shown],
            self._costs[last] if last >= 0 else 0.0,
            known_stop,
            next_arm,
            repeated=repeated,
            wants_label=number in ledger.label_requests,
        )
        if reason is None:
            return answer
        decided = as_decided(reason)
        fields = ("gap", "disagreement", "disagreement_ucb", "gap_won", "gain", "response")
        evidence = [
            Evidence(arms[e.first], arms[e.second], *(getattr(e, name) for name in fields))
            for e in decided.evidence
        ]
        return msgspec.structs.replace(answer, reason=str(decided), evidence=evidence)

    def view(self) -> CascadeView:
        """Return the cascade as the API shows it."""
        stops = list(self.counts.stops_total)
        n = sum(stops)
        return CascadeView(
            spec=self.spec,
            status=self.status,
            created=self.created,
            n_features=self._n_features(),
            rounds=len(self.ledger),
            open=len(self.ledger.open),
            learned=self.ledger.learned,
            labelled=len(self.ledger.labels),
            labels_wanted=len(self.ledger.answerable_labels()),
            stops=stops,
            mean_cost=float(np.dot(stops, self._costs)) / n if n else None,
            labels_asked=self.label_counts.asked,
            labels_missing=self.label_counts.missing,
        )


def _label_fingerprint(label: bytes, right: list[bool] | None) -> int:
    """Return the fingerprint of a label, in the form in which it was given."""
    return fingerprint(label if right is None else bytes(right))  # no JSON has these bytes


def _fingerprint(output: bytes, revealed: Floats) -> int:
    """Return the fingerprint of an output and of what came with it."""
    return fingerprint(output + b" " + revealed.tobytes() if len(revealed) else output)
