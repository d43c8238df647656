"""Label requests of the policies, and reported labels."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import UNSET

from stopwise.service.domain import commands
from stopwise.service.domain import messages as m
from stopwise.service.domain.cascade import ServedCascade, unknown_arm
from stopwise.service.domain.commands import CommandResult
from stopwise.service.domain.errors import Conflict, InvalidRequest, RoundGone
from stopwise.service.domain.events import Reported, context_of
from stopwise.service.domain.ledger import LEARNED, UNMATCHED_LIMIT
from stopwise.service.domain.outputs import canonical
from stopwise.service.domain.state import State
from stopwise.service.server_log import LOG
from stopwise.service.service import Service, outputs_by_arm
from stopwise.text import shorten

MAX_SHOWN = 20  # rounds in one answer


async def requested_labels(service: Service, name: str) -> m.WantedLabels:
    """Return the number of requested labels, and the oldest `MAX_SHOWN` of their rounds."""
    cascade = await service.look_up(lambda: service.state.cascade(name))
    ledger, shown = cascade.ledger, list[m.WantedLabel]()
    for number, request in ledger.answerable_labels().items():
        if number < ledger.first:  # forgotten in the meantime
            continue
        position = ledger.opened_at[ledger.row(number)]
        opened, reported = await service.round_events(cascade, number)
        if opened is None or reported is None:  # compacted while the service runs
            ledger.log_start = max(ledger.log_start, position + 1)
            continue
        context = np.frombuffer(context_of(opened, reported, number)).tolist()
        outputs = outputs_by_arm(reported, cascade.arms.names)
        id_, time = ledger.id(number), reported.time
        shown.append(m.WantedLabel(id_, time, context, outputs, request.probability))
        if len(shown) == MAX_SHOWN:
            break
    return m.WantedLabels(len(ledger.answerable_labels()), shown)


async def report_label(
    service: Service, name: str, id_: str, request: m.LabelReport
) -> m.LabelAnswer:
    """Add a label to a round that has ended."""
    _check_form(request)

    def find_learned() -> tuple[ServedCascade, int]:
        cascade, number = service.find(name, id_)
        if cascade.ledger.status[cascade.ledger.row(number)] != LEARNED:
            raise Conflict("only rounds that have ended can be labelled; report the outputs first")
        return cascade, number

    cascade, number = await service.look_up(find_learned)
    opened, reported = await service.round_events(cascade, number)
    if opened is None or reported is None:
        raise RoundGone("the events of this round were compacted away; it cannot be labelled")
    context, outputs = context_of(opened, reported, number), reported.outputs
    if not outputs:
        raise Conflict("no arm of this round answered, so a label would have no effect")
    label, right = b"", None
    if request.right is UNSET:
        label = _canonical_label(service, name, request.label, reported)
    else:
        right = _right_in_order(request.right, cascade.arms.names, len(outputs))

    def label_round(state: State, time: float) -> CommandResult:
        return commands.label_round(state, time, name, number, label, context, outputs, right)

    slow = service.is_slow(name)
    labelled, unmatched, repeated = await service.load_and_retry(
        lambda: service.submit(label_round, name, slow=slow)
    )
    if unmatched < UNMATCHED_LIMIT or right is not None:
        return m.LabelAnswer(id_, labelled, repeated)
    if unmatched == UNMATCHED_LIMIT and not repeated:
        # Neither the label nor the answers are logged: they may be personal.
        fields = {"cascade": name, "round": id_, "labels": unmatched}
        LOG.warning("labels match no arm", extra=fields)
    answers = outputs_by_arm(reported, cascade.arms.names)
    warning = unmatched_warning(unmatched, request.label, answers)
    return m.LabelAnswer(id_, labelled, repeated, warning)


def _check_form(request: m.LabelReport) -> None:
    if request.label is not UNSET and request.right is not UNSET:
        message = "send either label (the right answer) or right (which arms were right), not both"
        raise InvalidRequest(message, field="right")
    if request.right is UNSET:
        if request.label is UNSET:
            message = "label (the right answer) or right (which arms were right) is required"
            raise InvalidRequest(message, field="label")
        canonical(request.label, "label")  # raises if the label is invalid


def _right_in_order(right: dict[str, bool], arms: Sequence[str], answered: int) -> list[bool]:
    """Return whether each arm that answered was right, in the order of the arms."""
    if unknown := right.keys() - set(arms):
        raise InvalidRequest(unknown_arm(min(unknown), arms), field="right")
    expected = list(arms[:answered])
    if right.keys() != set(expected):
        message = (
            f"right must have a value for each arm that answered ({', '.join(expected)}) and no "
            f"others, got {', '.join(sorted(right)) or 'none'}"
        )
        raise Conflict(message, field="right")
    return [right[arm] for arm in expected]


def _canonical_label(service: Service, name: str, label: object, reported: Reported) -> bytes:
    """Return a label in the encoding that is compared with the outputs."""
    reader = service.label_readers.get(name)
    if reader is not None:
        return reader(label, reported)
    if reported.answers:
        raise Conflict(
            "the proxy compares the answers of this cascade with a function; send the labels of "
            "the cascade to the proxy"
        )
    return canonical(label, "label")


def unmatched_warning(count: int, label: object, answers: Mapping[str, object]) -> str:
    """Return a warning that the last ``count`` labels, including ``label``, match no output."""
    answered = ", ".join(f"{arm} answered {_quote(answer)}" for arm, answer in answers.items())
    return (
        f"the last {count} labels match no arm's answer. The latest label is {_quote(label)}, but "
        f"{answered}. Labels must be written in the same form as the answers"
    )


def _quote(value: object) -> str:
    return shorten(msgspec.json.encode(value).decode(), 60)
