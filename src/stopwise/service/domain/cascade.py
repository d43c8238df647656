"""One cascade of the service: its policy, its rounds, and the events that change them.

`open`, `report` and `label` validate a request, create its event and apply it; `apply_opened`,
`apply_reported` and `apply_labelled` apply a recorded event. Validation comes first, so that a
rejected request changes nothing.
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
from stopwise.service.domain.ledger import (
    EXPIRED,
    LEARNED,
    OPEN,
    STATUS_NAMES,
    KeyedRequest,
    Ledger,
)
from stopwise.service.domain.messages import CascadeSpec, CascadeView, Evidence, RoundAnswer
from stopwise.service.domain.outputs import StoredAnswer, canonical, fingerprint, pack_answers
from stopwise.service.server_log import LOG
from stopwise.text import shorten, suggestion

KEEP_RECENT = 50
EVIDENCE_WORK = 1e5  # multiplications to explain one decision


class RecentDecision(msgspec.Struct, frozen=True):
    """A recent decision with its reason."""

    ledger: Ledger
    number: int
    time: float
    stop: int
    cost: float
    reason: Decision | str

    @property
    def id(self) -> str:
        """The id of the round in the API."""
        return self.ledger.id(self.number)

    def explanation(self) -> str:
        """Return the reason as a sentence."""
        return self.reason if isinstance(self.reason, str) else str(cheap_evidence(self.reason))

    def evidence(self) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind the decision; empty for a batch or a restored decision."""
        return () if isinstance(self.reason, str) else cheap_evidence(self.reason).evidence


def cheap_evidence(decision: Decision) -> Decision:
    """Return a decision whose evidence comes from its proof, without a pass over the history."""
    return msgspec.structs.replace(decision, exact_evidence=False)


class ServedCascade:
    """The policy, rounds and counts of one cascade; ``index`` is its number in creation order."""

    def __init__(
        self, index: int, spec: CascadeSpec, created: float, policy: Policy | None = None
    ) -> None:
        self.index = index
        self.spec = spec
        self.created = created
        self.status: Literal["active", "retired"] = "active"
        self.policy = specs.build(spec) if policy is None else policy
        self.arms = self.policy.cascade
        self.ledger = Ledger(spec.name, self.arms.n_arms, spec.keep_open)
        self.counts = Counts.blank(self.arms.n_arms)
        self.recent: deque[RecentDecision] = deque(maxlen=KEEP_RECENT)
        self.divergences = 0  # recorded decisions that this machine would make differently
        self.staged = self.policy.reveals is not None  # stages reveal the context
        self.contexts = ContextParser(spec, self.policy)
        self._costs = cast(list[float], self.arms.cumulative.tolist())
        self._names = self.arms.names
        # The time of the outputs being learned from, and whether they were just reported (True) or
        # are replayed from the log (False).
        self._time = created
        self._live = False
        if isinstance(self.policy, PairwisePolicy):
            self.policy.watch(self._log_change)

    def work(self, rounds: int, *, evidence: bool = False) -> float:
        """Return the maximum number of multiplications for opening this many rounds.

        All decisions together take at most one pass over the history.
        """
        per_row = float(len(self.arms.pairs()) * self._n_features() ** 2)
        decisions = per_row * (self.ledger.learned + rounds)
        return decisions + EVIDENCE_WORK * rounds if evidence else decisions

    @property
    def label_counts(self) -> LabelCounts:
        """The counts of labels that the policy requested; zeros for a policy that requests none."""
        if isinstance(self.policy, PairwisePolicy):
            return self.policy.labels
        return LabelCounts(requested=0, received=0, missing=0, fixed_depth=None)

    def _n_features(self) -> int:
        """Return the current number of features, which may change in the first rounds."""
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
        """Open rounds; return the event (None if the key was used before) and the answers."""
        repeat = None if key is None else self.ledger.idempotency_keys.find(key, digest)
        if repeat is not None:
            numbers = range(repeat.first, repeat.first + repeat.count)
            return None, [self.answer(number) for number in numbers]
        if self.status == "retired":
            raise CascadeRetired(self.spec.name)
        if len(contexts) > self.spec.keep_open:
            message = (
                f"at most {self.spec.keep_open:,} rounds may be open (keep_open), "
                f"got {len(contexts):,} contexts"
            )
            raise InvalidRequest(message, field="contexts")
        if self.staged and len(contexts) != 1:
            raise Conflict(
                "rounds of this cascade cannot be opened in a batch, because its stages reveal the "
                "context; open them one by one"
            )
        if complete and not self.staged:
            message = (
                "complete is allowed only if stages reveal the context; in this cascade, run the "
                "arms up to stop"
            )
            raise InvalidRequest(message, field="complete")
        decisions, stops, rule_stops = None, list[int](), list[int]()
        try:
            rows = self.contexts.rows(contexts)
            if self.staged:
                waiting: Sequence[bytes | RoundInProgress] = [self._start(rows[0], complete)]
            else:
                if evidence and len(rows) > 1 and self.policy.features is not None:
                    self.policy.features.rows(rows)  # check all contexts before deciding any
                decisions, stops, rule_stops = self._decide(rows, one_by_one=evidence)
                waiting = [x.tobytes() for x in rows]  # copies, which do not keep the batch alive
        except StopwiseError as error:
            raise self.contexts.invalid(error) from None
        event = Opened(
            cascade=self.index,
            first=len(self.ledger),
            count=len(waiting),
            contexts=rows.tobytes(),
            stops=bytes(stops),
            rule_stops=b"" if stops == rule_stops else bytes(rule_stops),
            time=time,
            key=key,
            digest=digest,
            complete=complete,
        )
        self._add(event, waiting, decisions, position)
        reasons: Sequence[Decision | None] = [None] * event.count
        if evidence and decisions is not None:
            reasons = decisions
        answers = [self.answer(event.first + k, reason=reason) for k, reason in enumerate(reasons)]
        return event, answers

    def apply_opened(self, event: Opened, position: int) -> None:
        """Apply a recorded `Opened` event."""
        rows = np.frombuffer(event.contexts).reshape(event.count, -1).copy()
        if self.staged:
            self._add(event, [self._start(rows[0], event.complete)], None, position)
            return
        decisions, stops, _ = self._decide(rows)
        # Rounding may differ between machines. The recorded stops are kept: clients received them.
        self.divergences += sum(a != b for a, b in zip(stops, event.stops, strict=True))
        self._add(event, [x.tobytes() for x in rows], decisions, position)

    def _decide(
        self, rows: Floats, *, one_by_one: bool = False
    ) -> tuple[list[Decision] | None, list[int], list[int]]:
        """Return the decisions (None for a batch), the stops, and the stops without exploration."""
        if one_by_one or len(rows) == 1:
            decisions = [self.policy.decide(x) for x in rows]
            stops = [decision.stop for decision in decisions]
            rule_stops = [decision.rule_stop for decision in decisions]
            return decisions, stops, rule_stops
        batch_stops, batch_rule_stops = batch.decide_batch(self.policy, rows)
        return (
            None,
            cast(list[int], batch_stops.tolist()),
            cast(list[int], batch_rule_stops.tolist()),
        )

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
        if not stops:  # the stop is decided later
            self.ledger.add(waiting, [-1], [-1], position)
            return
        self.ledger.add(waiting, stops, event.rule_stops or stops, position)
        self.counts.add_stops(event.time, stops)
        if decisions is None:  # the dashboard shows only the last round of a batch
            reason = f"The last round of a batch of {count:,}."
            self._add_recent(first + count - 1, event.time, stops[-1], reason)
        for k, decision in enumerate(decisions or ()):
            self._add_recent(first + k, event.time, stops[k], decision)

    def _add_recent(self, number: int, time: float, stop: int, reason: Decision | str) -> None:
        cost = self._costs[stop]
        self.recent.append(RecentDecision(self.ledger, number, time, stop, cost, reason))

    def _start(self, row: Floats, complete: bool) -> RoundInProgress:
        in_progress = self.policy.start(row)
        if complete:
            in_progress.run_all()
        in_progress.next()  # always the first arm
        return in_progress

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
        """Add outputs of arms; return the event (None if nothing is new) and the answer.

        If labels are compared with the answers of the arms rather than with their outputs,
        ``answers`` has the answer behind each output reported so far.
        """
        ledger = self.ledger
        status = ledger.status[ledger.row(number)]
        addition = np.array(revealed, dtype=np.float64)
        new = self._new_outputs(number, self._canonical_by_arm(outputs), addition)
        if status == EXPIRED and new:
            raise RoundGone(
                f"this round expired, because {self.spec.keep_open:,} newer rounds were open "
                "(keep_open)"
            )
        # A repeat of the request that ended the round may have outputs after the first missing one.
        if status == LEARNED and new and not (final and min(new) > ledger.next_arm(number)):
            missing = ", ".join(self._names[arm] for arm in new)
            raise Conflict(
                f"the round has ended; the policy learned from it without these arms: {missing}"
            )
        if status != OPEN or (not new and not final):
            return None, self.answer(number, repeated=True)
        waiting = ledger.open[number]
        context = b""
        if isinstance(waiting, RoundInProgress):
            stopped = bool(new) and self._advance(waiting, new, addition)
            context = np.array(waiting.context).tobytes()
            by_arm = dict(enumerate(cast(list[bytes], waiting.outputs)))
            reached = len(by_arm)
        else:
            by_arm = {**ledger.partial.get(number, {}), **new}
            stop = ledger.stops[ledger.row(number)]
            reached = next((arm for arm in range(stop + 1) if arm not in by_arm), stop + 1)
            stopped = reached > stop
        ended = stopped or final
        arms = list(range(reached)) if ended else sorted(new)
        keep_answers = ended and self.policy.learns_from_labels
        event = Reported(
            cascade=self.index,
            number=number,
            arms=arms,
            outputs=[by_arm[arm] for arm in arms],
            ended=ended,
            time=time,
            early=ended and not stopped,
            revealed=addition.tobytes(),
            context=context if ended else b"",
            answers=pack_answers(answers[:reached]) if keep_answers else b"",
        )
        self._live = True
        self._apply(event, addition, position)
        return event, self.answer(number)

    def apply_reported(self, event: Reported, position: int) -> None:
        """Apply a recorded `Reported` event."""
        self._live = False  # changes were logged when the outputs were reported
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
        request = None
        self._time = event.time
        if isinstance(waiting, RoundInProgress):
            stop, row = len(waiting.outputs) - 1, ledger.row(number)
            ledger.stops[row], ledger.rule_stops[row] = stop, waiting.rule_stop
            waiting.learn()
            request = waiting.request
            if stop >= 0:
                self.counts.add_stops(event.time, [stop], early=event.early)
                reason = waiting.decision or "The round ended early because a stage failed."
                self._add_recent(number, event.time, stop, reason)
        elif event.outputs:
            rule_stop = ledger.rule_stops[ledger.row(number)]
            x = np.frombuffer(waiting)
            request = self.policy.observe(x, event.outputs, rule_stop=rule_stop)
        if request is not None:
            ledger.add_label_request(number, request)
        if event.outputs:
            self.counts.add_outputs(event.outputs)
        ledger.end(number, position)

    def _log_change(self, change: Change) -> None:
        """Count a change in the disagreement of two arms; log it unless events are replayed."""
        self.counts.changes_total += 1
        self.counts.changes = [*self.counts.changes, (self._time, change)][-KEEP_RECENT:]
        if self._live:
            pair = [self._names[arm] for arm in change.pair]
            fields = {"cascade": self.spec.name, "pair": pair, "rounds": change.noticed}
            fields |= {"before": round(change.before, 4), "after": round(change.after, 4)}
            LOG.warning("disagreement changed", extra=fields)

    def _advance(
        self, in_progress: RoundInProgress, new: dict[int, bytes], revealed: Floats
    ) -> bool:
        """Add the output of the next arm to a round; return whether the rule stops there."""
        ((arm, output),) = new.items()
        expected = len(in_progress.outputs)
        if arm != expected:
            message = f"the next output must come from {self._names[expected]!r}"
            raise Conflict(f"{message}, got one from {self._names[arm]!r}", field="outputs")
        try:
            in_progress.give(output, cast(list[float], revealed.tolist()))
        except StopwiseError as error:
            raise self.contexts.invalid(error, field="revealed") from None
        return in_progress.next() is None

    def _canonical_by_arm(self, outputs: list[object] | dict[str, object]) -> dict[int, bytes]:
        """Return the canonical outputs by arm index."""
        arms = self._names
        if isinstance(outputs, list):
            if len(outputs) > len(arms):
                limit = f"outputs must have at most {len(arms)} values, one per arm"
                message = f"{limit}, got {len(outputs)}"
                raise InvalidRequest(message, field="outputs")
            outputs = dict(zip(arms, outputs, strict=False))
        if unknown := outputs.keys() - arms:
            raise InvalidRequest(unknown_arm(min(unknown), arms), field="outputs")
        return {
            arm: canonical(outputs[name], f"outputs[{arm}]")
            for arm, name in enumerate(arms)
            if outputs.get(name) is not None
        }

    def _new_outputs(
        self, number: int, outputs: dict[int, bytes], revealed: Floats
    ) -> dict[int, bytes]:
        """Return the outputs not reported before; raise if a repeated output differs."""
        ledger = self.ledger
        if len(revealed) and not self.staged:
            message = "the stages of this cascade reveal nothing; omit revealed"
            raise InvalidRequest(message, field="revealed")
        if len(revealed) and len(outputs) != 1:
            message = "revealed must belong to a single output; report one arm at a time"
            raise InvalidRequest(message, field="revealed")
        if len(invalid := revealed[~np.isfinite(revealed)]):
            message = f"revealed must contain only finite numbers, got {invalid[0]}"
            raise InvalidRequest(message, field="revealed")
        last = len(self._names) - 1 if self.staged else ledger.stops[ledger.row(number)]
        new: dict[int, bytes] = {}
        for arm, output in outputs.items():
            if arm > last:
                message = (
                    f"this round stops at {self._names[last]!r}; it does not accept the output of "
                    f"the later arm {self._names[arm]!r}"
                )
                raise Conflict(message, field="outputs")
            before = ledger.fingerprint(number, arm)
            if before == 0:
                new[arm] = output
            elif before != _fingerprint(output, revealed):
                message = f"a different output of {self._names[arm]!r} was already reported"
                raise Conflict(f"{message}; the first one is kept", field="outputs")
        if self.staged and len(new) > 1:
            message = "the stages of this cascade reveal the context; report one arm at a time"
            raise Conflict(message, field="outputs")
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
        """Add the label of a round; return the event (None if nothing is new).

        The label is either the right answer (``label``) or whether each arm was right (``right``).
        """
        before = self.ledger.labels.get(number)
        if before is not None:
            if before != _label_fingerprint(label, right):
                raise Conflict("a different label was already reported; the first one is kept")
            return None
        rule_stop = self.ledger.rule_stops[self.ledger.row(number)]
        request = self.ledger.label_requests.get(number)
        if request is not None and request.explored == 0:
            rule_stop = len(outputs) - 1  # the request covers all arms that ran, as with `run_all`
        event = Labelled(self.index, number, label, context, outputs, rule_stop, time, right)
        try:
            self.apply_labelled(event)
        except LabelsNotSupportedError as error:
            raise Conflict(str(error)) from None
        return event

    def apply_labelled(self, event: Labelled) -> None:
        """Apply a recorded `Labelled` event."""
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
        """Return the state of a round as the API shows it."""
        ledger, arms, row = self.ledger, self._names, self.ledger.row(number)
        status, missing = ledger.status[row], ledger.next_arm(number)
        stop = ledger.stops[row] if ledger.stops[row] >= 0 else None
        next_arm = missing if status == OPEN else None
        shown = next_arm if stop is None else stop
        last = missing - 1 if stop is None else stop  # the cost covers the arms up to this one
        answer = RoundAnswer(
            id=ledger.id(number),
            status=STATUS_NAMES[status],
            arm="" if shown is None else arms[shown],
            cost=self._costs[last] if last >= 0 else 0.0,
            stop=stop,
            next=next_arm,
            repeated=repeated,
            wants_label=number in ledger.label_requests,
        )
        if reason is None:
            return answer
        decision = cheap_evidence(reason)
        evidence = [
            Evidence(
                first=arms[pair.first],
                second=arms[pair.second],
                gap=pair.gap,
                disagreement=pair.disagreement,
                disagreement_ucb=pair.disagreement_ucb,
                gap_won=pair.gap_won,
                gain=pair.gain,
                response=pair.response,
            )
            for pair in decision.evidence
        ]
        return msgspec.structs.replace(answer, reason=str(decision), evidence=evidence)

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
            labels_asked=self.label_counts.requested,
            labels_missing=self.label_counts.missing,
        )


def unknown_arm(name: str, arms: Sequence[str]) -> str:
    """Return the error message for an unknown arm name."""
    return f"unknown arm {shorten(name, 80)!r}; {suggestion(name, arms)}"


def _label_fingerprint(label: bytes, right: list[bool] | None) -> int:
    """Return the fingerprint of a label, which is either the right answer or ``right``."""
    return fingerprint(label if right is None else bytes(right))  # these bytes are never JSON


def _fingerprint(output: bytes, revealed: Floats) -> int:
    """Return the fingerprint of an output and the numbers it revealed."""
    return fingerprint(output + b" " + revealed.tobytes() if len(revealed) else output)
