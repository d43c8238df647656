"""Commands: requests that change the state, as functions of the state and the time.

A command validates the request first, so that a `RequestError` leaves the state unchanged. Then it
changes the state and returns the event (None if nothing changed) and the answer.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from stopwise.policies.protocol import Policy
from stopwise.service.domain import messages as m
from stopwise.service.domain import spec as specs
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.contexts import Contexts
from stopwise.service.domain.errors import Conflict
from stopwise.service.domain.events import Created, Event, Retired
from stopwise.service.domain.outputs import StoredAnswer
from stopwise.service.domain.state import State

CommandResult: TypeAlias = tuple[Event | None, object]
Command: TypeAlias = Callable[[State, float], CommandResult]


def create_cascade(
    state: State,
    time: float,
    spec: m.CascadeSpec,
    policy: Policy,
    *,
    key: str | None,
    digest: bytes,
    max_cascades: int,
    max_tables: int,
) -> CommandResult:
    """Create a cascade from a spec and the policy that was built from it.

    The answer is the view of the cascade, and whether the cascade is new.
    """
    repeat = state.idempotency_keys.find(key, digest)
    existing = state.order[repeat.first] if repeat else state.cascades.get(spec.name)
    if existing is not None and existing.spec == spec:
        return None, (state.cascade(spec.name).view(), False)
    if existing is not None:
        raise Conflict(
            f"cascade {spec.name!r} already exists with a different definition; a definition "
            "cannot be changed, because the policy learns from its arms and costs; use another "
            "name",
            field="name",
        )
    if len(state.order) >= max_cascades:
        raise Conflict(f"this service allows at most {max_cascades:,} cascades (max_cascades)")
    policies = [policy, *(cascade.policy for cascade in state.order)]
    if sum(map(specs.table_bytes, policies)) > max_tables << 20:
        raise Conflict(
            f"the tables of all cascades would need more than {max_tables:,} MB (max_tables); "
            "use fewer features or arms",
            field="features",
        )
    event = Created(spec, time, key)
    cascade = ServedCascade(len(state.order), spec, time, policy)
    view = cascade.view()  # before the state changes, because it may fail
    state.apply_created(event, cascade)
    return event, (view, True)


def retire_cascade(state: State, time: float, name: str) -> CommandResult:
    """Retire a cascade, so that it accepts no new rounds."""
    cascade = state.cascade(name)
    if cascade.status == "retired":
        return None, cascade.view()
    cascade.status = "retired"
    return Retired(cascade.index, time), cascade.view()


def open_rounds(
    state: State,
    time: float,
    name: str,
    contexts: Contexts,
    *,
    key: str | None,
    digest: bytes,
    evidence: bool,
    complete: bool,
) -> CommandResult:
    """Open rounds; the answer is the rounds, and whether they are new."""
    event, answers = state.cascade(name).open(
        contexts,
        time,
        state.position + 1,
        key=key,
        digest=digest,
        evidence=evidence,
        complete=complete,
    )
    return event, (answers, event is not None)


def report_outputs(
    state: State,
    time: float,
    name: str,
    id_: str,
    request: m.OutputsRequest,
    answers: Sequence[StoredAnswer],
) -> CommandResult:
    """Add outputs of a round; `ServedCascade.report` describes ``answers``."""
    cascade = state.cascade(name)
    return cascade.report(
        cascade.ledger.number(id_),
        request.outputs,
        request.revealed,
        request.final,
        time,
        state.position + 1,
        answers,
    )


def label_round(
    state: State,
    time: float,
    name: str,
    number: int,
    label: bytes,
    context: bytes,
    outputs: list[bytes],
    right: list[bool] | None = None,
) -> CommandResult:
    """Add the label of a round: the right answer, or whether each arm was right.

    The answer is the number of labelled rounds, the number of labels in a row that match no
    output, and whether this label is a repeat.
    """
    cascade = state.cascade(name)
    event = cascade.label(number, label, context, outputs, time, right)
    labelled, unmatched = len(cascade.ledger.labels), cascade.counts.unmatched_labels
    return event, (labelled, unmatched, event is None)


def no_change(state: State, time: float) -> CommandResult:
    """Change nothing; once the command is answered, all earlier events are stored and applied."""
    return None, None
