"""Labels: which ones the policies ask for, and what people answer."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import UNSET

from stopwise.service.domain import commands
from stopwise.service.domain import messages as m
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.commands import CommandResult
from stopwise.service.domain.errors import Conflict, InvalidRequest, RoundGone
from stopwise.service.domain.events import Reported, context_of
from stopwise.service.domain.ledger import LEARNED, UNMATCHED_LIMIT
from stopwise.service.domain.outputs import canonical
from stopwise.service.domain.state import State
from stopwise.service.server_log import LOG
from stopwise.service.service import Service, outputs_by_arm
from stopwise.text import shorten

SHOWN = 20  # rounds in one answer


async def requested_labels(service: Service, name: str) -> m.WantedLabels:
    """Return the rounds whose labels a cascade asks for, the oldest first."""
    cascade = await service.look_up(lambda: service.state.cascade(name))
    ledger, shown = cascade.ledger, list[m.WantedLabel]()
    for number, request in ledger.answerable_labels().items():
        if number < ledger.first:  # forgotten meanwhile
            continue
        position = ledger.opened_at[ledger.row(number)]
        opened, reported = await service.round_events(cascade, number)
        if opened is None or reported is None:  # compacted away while the service runs
            ledger.log_start = max(ledger.log_start, position + 1)
            continue
        context = np.frombuffer(context_of(opened, reported, number)).tolist()
        outputs = outputs_by_arm(reported, cascade.arms.names)
        id_, time = ledger.id(number), reported.time
        shown.append(m.WantedLabel(id_, time, context, outputs, request.probability))
        if len(shown) == SHOWN:
            break
    return m.WantedLabels(len(ledger.answerable_labels()), shown)


async def report_label(
    service: Service, name: str, id_: str, request: m.LabelReport
) -> m.LabelAnswer:
    """Add the label of a round that has ended."""
    _check_form(request)

    def find_learned() -> tuple[ServedCascade, int]:
        cascade, number = service.find(name, id_)
        if cascade.ledger.status[cascade.ledger.row(number)] != LEARNED:
            raise Conflict("a label is for a round that was learned: report its outputs first")
        return cascade, number

    cascade, number = await service.look_up(find_learned)
    opened, reported = await service.round_events(cascade, number)
    if opened is None or reported is None:
        words = "the events of this round were compacted away: it is too late for a label"
        raise RoundGone(words)
    context, outputs = context_of(opened, reported, number), reported.outputs
    if not outputs:
        raise Conflict("no arm of this round answered: nothing can be learned from a label")
    label, right = b"", None
    if request.right is UNSET:
        label = _compared(service, name, request.label, reported)
    else:
        right = _by_position(request.right, cascade.arms.names, len(outputs))

    def give(state: State, time: float) -> CommandResult:
        return commands.label_round(state, time, name, number, label, context, outputs, right)

    slow = service.is_slow(name)
    given = await service.load_and_retry(lambda: service.submit(give, name, slow=slow))
    labelled, unmatched, repeated = given
    if unmatched < UNMATCHED_LIMIT or right is not None:
        return m.LabelAnswer(id_, labelled, repeated)
    if unmatched == UNMATCHED_LIMIT and not repeated:
        # Without the label and the answers, which may be personal.
        fields = {"cascade": name, "round": id_, "labels": unmatched}
        LOG.warning("labels match no arm", extra=fields)
    said = outputs_by_arm(reported, cascade.arms.names)
    warning = unmatched_warning(unmatched, request.label, said)
    return m.LabelAnswer(id_, labelled, repeated, warning)


def _check_form(request: m.LabelReport) -> None:
    if request.label is not UNSET and request.right is not UNSET:
        words = "give either label, the right answer, or right, which arms were right; not both"
        raise InvalidRequest(words, field="right")
    if request.right is UNSET:
        if request.label is UNSET:
            words = "give label, the right answer, or right, which arms were right"
            raise InvalidRequest(words, field="label")
        canonical(request.label, "label")  # or it is refused


def _by_position(right: dict[str, bool], arms: Sequence[str], answered: int) -> list[bool]:
    """Return whether each arm that answered was right, in the order of the arms."""
    if unknown := right.keys() - set(arms):
        words = f"no arm is called {min(unknown)[:80]!r}; the arms are {', '.join(arms)}"
        raise InvalidRequest(words, field="right")
    expected = list(arms[:answered])
    if right.keys() != set(expected):
        words = (
            "right must have a value for each arm that answered, and no other: "
            f"{', '.join(expected)}"
        )
        raise Conflict(words, field="right")
    return [right[arm] for arm in expected]


def _compared(service: Service, name: str, label: object, reported: Reported) -> bytes:
    """Return a label as outputs are compared."""
    reader = service.label_readers.get(name)
    if reader is not None:
        return reader(label, reported)
    if reported.answers:
        words = "a function of the proxy compares the answers of this cascade: label it there"
        raise Conflict(words)
    return canonical(label, "label")


def unmatched_warning(count: int, label: object, said: Mapping[str, object]) -> str:
    """Return the warning that labels equal no output, with the newest of them."""
    answers = ", ".join(f"{arm} said {_shown(answer)}" for arm, answer in said.items())
    return (
        f"the last {count} labels match no arm of their rounds. The newest is {_shown(label)}, and "
        f"{answers}. Are labels written as the arms answer?"
    )


def _shown(value: object) -> str:
    return shorten(msgspec.json.encode(value).decode(), 60)
