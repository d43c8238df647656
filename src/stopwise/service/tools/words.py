"""What the tools found, in sentences."""

from datetime import UTC, datetime

from stopwise.service.learner import Learner
from stopwise.service.state import State
from stopwise.service.tools.compacting import Compacted, Plan
from stopwise.service.tools.exporting import Exported
from stopwise.service.tools.folding import Beginning
from stopwise.service.tools.looking import Sight
from stopwise.service.tools.verifying import Verified


def counted(n: int, noun: str) -> str:
    """Return a number and its noun.

    Examples
    --------
    >>> counted(1, "event"), counted(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def size(n: int) -> str:
    """Word a number of bytes.

    Examples
    --------
    >>> size(999), size(1500), size(2_500_000)
    ('999 bytes', '1.5 kB', '2.5 MB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n >= unit:
            return f"{n / unit:.1f} {name}"
    return f"{n} bytes"


def moment(seconds: float | None) -> str:
    """Word a time.

    Examples
    --------
    >>> moment(0.0), moment(None)
    ('1970-01-01 00:00:00 UTC', '–')
    """
    if seconds is None:
        return "–"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def of_replay(start: Beginning, began: int, state: State) -> list[str]:
    """Say what a log amounts to, read from where it begins."""
    decisions = sum(len(learner.ledger) for learner in state.order)
    lines = [
        f"Read the log from the snapshot at event {began:,} on, as events 1 to "
        f"{start.first - 1:,} were compacted away: {counted(state.position - began, 'event')}, up "
        f"to event {state.position:,}."
        if start.compacted
        else f"Read the log from its first event: {counted(state.position, 'event')}.",
        f"{counted(decisions, 'decision')} in {counted(len(state.order), 'cascade')}.",
        f"State hash: {state.hash()}",
    ]
    for learner in state.order:
        lines += ["", *of_cascade(learner)]
    return lines


def of_cascade(learner: Learner) -> list[str]:
    """Say what a cascade has decided and learned; reads only, so that no bit changes."""
    view, tally = learner.view(), learner.tally
    arms = learner.cascade.names
    status = "" if learner.status == "active" else ", retired"
    lines = [
        (
            f"{learner.spec.name} ({learner.policy.name}{status}): "
            f"{counted(view.decisions, 'decision')}, {view.learned:,} learned, {view.open:,} open, "
            f"{view.audited:,} audited"
        )
    ]
    total = sum(view.stops)
    if total:
        shares = "/".join(f"{100 * n / total:.0f}" for n in view.stops)
        lines.append(
            f"  stops at {'/'.join(arms)}: {shares} %, mean cost {view.mean_cost or 0.0:.4g}"
        )
    for (i, j), seen, differed in zip(
        learner.cascade.pairs(), tally.seen_total, tally.differed_total, strict=True
    ):
        if seen:
            lines.append(
                f"  {arms[i]} and {arms[j]}: both asked in {counted(seen, 'round')}, disagreed in "
                f"{100 * differed / seen:.1f} %"
            )
    if learner.divergences:
        lines.append(
            f"  {counted(learner.divergences, 'decision')} would be other ones on this machine"
        )
    return lines


def of_verified(found: Verified) -> list[str]:
    """Say that a log is whole, and what could not be compared bit for bit."""
    if not found.end:
        return ["The log is empty."]
    lines = [_whole(found)]
    if found.unfolded:
        lines.append(
            f"{counted(found.unfolded, 'event')} from before the oldest snapshot can be read, but "
            "what they amounted to cannot be computed again."
        )
    if found.folded and not found.divergences:
        lines.append(
            "Every event can follow those before it, and every decision is the one that this "
            "machine takes."
        )
    elif found.divergences:
        told = ", ".join(f"{n:,} of {name}" for name, n in found.divergences.items())
        lines.append(
            f"Decisions that would be other ones here: {told}; the first at event "
            f"{found.diverged_at:,} or soon after. That is no damage: another version of Stopwise "
            "took them, and differs in the last bit of some number. "
            "What was answered is what counts, and what was learned from it is right."
        )
    if found.snapshots:
        lines.append(f"Equal to the fold, bit for bit: {_snapshots(found.snapshots)}.")
    if found.unlike:
        lines.append(
            f"The same facts, but other last bits than the fold has here: "
            f"{_snapshots(found.unlike)}. Another version of Stopwise wrote it."
        )
    if found.unread:
        lines.append(
            f"Not looked into: {_snapshots(found.unread)}, as another version of Stopwise wrote it."
        )
    lines.append(f"State hash: {found.hash}")
    return lines


def _whole(found: Verified) -> str:
    if found.first > found.end:
        return f"The log is whole: a snapshot of event {found.end:,}, and no events after it."
    before = (
        f" Those before it were compacted away; nothing is left to check event {found.first:,} "
        "against."
        if found.first > 1 and found.unfolded
        else " Those before it were compacted away."
        if found.first > 1
        else ""
    )
    return f"The log is whole: events {found.first:,} to {found.end:,}.{before}"


def _snapshots(positions: list[int]) -> str:
    many = "the snapshots at events" if len(positions) > 1 else "the snapshot at event"
    return f"{many} {', '.join(f'{position:,}' for position in positions)}"


def of_export(done: Exported) -> list[str]:
    """Say what was exported, and what was left out."""
    lines = [
        (
            f"{counted(done.rounds, 'round')}, in the order in which they were learned; "
            f"{done.labelled:,} with labels, {done.failed:,} that ended early."
        )
    ]
    left = [
        f"{counted(n, 'decision')} {why}"
        for n, why in (
            (done.open, "still open"),
            (done.expired, "given up"),
            (done.lost, "whose beginning was compacted away"),
        )
        if n
    ]
    if left:
        lines.append(f"Left out: {', '.join(left)}.")
    if done.as_json:
        lines.append(f"Outputs are written as JSON in text, since {done.as_json}.")
    return lines


def of_few(done: Exported, least: int) -> list[str]:
    """Say why a log that was exported cannot be diagnosed yet."""
    have = "1 round has" if done.complete == 1 else f"{done.complete:,} rounds have"
    typical = "" if done.balanced == done.complete else f" ({done.balanced:,} in fair shares)"
    found = f"{have} the outputs of all arms{typical}"
    return [
        f"Too few for stopwise diagnose: {found}, and it takes {least}.",
        "Rounds go to the last arm now and then where the policy has full_depth_every.",
    ]


def of_plan(planned: Plan) -> list[str]:
    """Say what compacting would forget, and what cannot be done afterwards."""
    events = f"{counted(planned.events, 'event')} ({size(planned.bytes)})"
    decisions = counted(planned.decisions, "decision")
    lines = [
        f"{events} would be forgotten, written until {moment(planned.until)}.",
        f"{decisions} taken in them could be looked up and labelled no more.",
    ]
    if planned.open:
        lines.append(
            f"{planned.open:,} of them still wait for outputs, which may be told all the same: the "
            "snapshot keeps their contexts."
        )
    whose = "All other" if planned.open else "Their"
    lines += [
        f"{whose} contexts would be gone from the log; the policy keeps its features of them.",
        "The log could be read again from its snapshot only. If that may ever matter, make a",
        "backup first: stopwise log backup.",
    ]
    if not planned.verified.exact:
        lines.append(
            "This machine computes other last bits than the log has (stopwise log verify): better "
            "compact it where the service runs."
        )
    return lines


def of_compacted(planned: Plan, done: Compacted) -> list[str]:
    """Say what was forgotten."""
    made = "written for it" if done.written else "which was there"
    return [
        f"Forgot {counted(done.events, 'event')} ({size(planned.bytes)}).",
        f"What they amount to is in the snapshot at event {done.snapshot:,}, {made}: a service",
        "that starts from it has the same state, bit for bit.",
    ]


def of_sight(found: Sight) -> list[str]:
    """Say what a log holds."""
    if not found.end:
        return ["The log is empty."]
    held = found.end - found.first + 1
    lines = [
        f"{counted(held, 'event')} in {counted(found.blocks, 'block')}, {size(found.bytes)}"
        + (f"; events 1 to {found.first - 1:,} were compacted away" if found.first > 1 else "")
        + " (not checked: log verify does)",
        f"first {moment(found.began)}, last {moment(found.ended)}",
        "events: " + (", ".join(f"{n:,} {kind}" for kind, n in found.kinds.items() if n) or "none"),
        "snapshots: "
        + (", ".join(f"at {at:,} ({size(n)})" for at, n in found.snapshots.items()) or "none"),
    ]
    if found.file is not None:
        lines.append(f"file: {size(found.file)}")
    for learner in found.state.order:
        lines += ["", *of_cascade(learner)]
    return lines
