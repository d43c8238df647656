"""Labels: which ones the policies ask for, and what people answer."""

import numpy as np

from stopwise.service import messages as m
from stopwise.service.events import context_of
from stopwise.service.learner import Learner
from stopwise.service.ledger import LEARNED
from stopwise.service.outputs import canonical, decode_output
from stopwise.service.refusals import Refusal, conflict
from stopwise.service.service import Service
from stopwise.service.state import State
from stopwise.service.writer import Applied

SHOWN = 20  # rounds in one answer


async def wanted_labels(service: Service, name: str) -> m.WantedLabels:
    """Return the rounds whose labels a cascade asks for, the oldest first."""
    learner = await service.look_up(lambda: service.state.learner(name))
    ledger, shown = learner.ledger, list[m.WantedLabel]()
    for number, request in ledger.answerable().items():
        if number < ledger.first:  # forgotten meanwhile
            continue
        position = ledger.opened_at[ledger.row(number)]
        opened, reported = await service.round_events(learner, number)
        if opened is None or reported is None:  # compacted away while the service runs
            ledger.logged_from = max(ledger.logged_from, position + 1)
            continue
        context = np.frombuffer(context_of(opened, reported, number)).tolist()
        answers = map(decode_output, reported.outputs)
        outputs = dict(zip(learner.cascade.names, answers, strict=False))
        id_, time = ledger.id(number), reported.time
        shown.append(m.WantedLabel(id_, time, context, outputs, request.probability))
        if len(shown) == SHOWN:
            break
    return m.WantedLabels(len(ledger.answerable()), shown)


async def give_label(
    service: Service, name: str, id_: str, request: m.LabelRequest
) -> m.LabelAnswer:
    """Add the right answer of a round that has ended."""
    label = canonical(request.label, "label")

    def find_learned() -> tuple[Learner, int]:
        learner, number = service.find(name, id_)
        if learner.ledger.status[learner.ledger.row(number)] != LEARNED:
            raise conflict("a label is for a round that was learned: report its outputs first")
        return learner, number

    learner, number = await service.look_up(find_learned)
    opened, reported = await service.round_events(learner, number)
    if opened is None or reported is None:
        words = "the events of this round were compacted away: it is too late for a label"
        raise Refusal(410, "gone", words)
    context, outputs = context_of(opened, reported, number), reported.outputs
    if not outputs:
        raise conflict("no arm of this round answered: nothing can be learned from a label")

    def give(state: State, time: float) -> Applied:
        learner = state.learner(name)
        event = learner.label(number, label, context, outputs, time)
        return event, m.LabelAnswer(id_, len(learner.ledger.labels), event is None)

    return await service.loaded(lambda: service.submit(give, name, slow=service.slow_for(name)))
