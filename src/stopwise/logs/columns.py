"""Which column of a log means what, and which columns `LogWriter` writes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeAlias

import msgspec

from stopwise.errors import InvalidLogError, InvalidParameterError

CONTEXT, REVEALED, OUTPUT, COST = "context.", "revealed.", "output.", "cost."

Row: TypeAlias = list[Any]  # to be written: one value for each field; None where there is none


class Field(msgspec.Struct, frozen=True):
    """A column to write: its name in a table, where it is in a JSON object, and what it holds."""

    name: str
    path: tuple[str, ...]
    holds: Literal["text", "time", "number", "answer"]


class Columns(msgspec.Struct, frozen=True):
    """The columns of a table that was not written by Stopwise.

    Leave out what has the names of the format (docs/logs.md). If ``outputs`` is given,
    ``stop``, ``rule_stop`` and ``failed`` are read only if they are given too.

    Attributes
    ----------
    context : tuple of str or None
        What is known before the first arm; default: every ``context.*``. An empty tuple
        means that the log has no contexts.
    outputs : tuple of str or None
        The output of each arm, in the order of the cascade; default: every ``output.*``.
    label : str or None
        The right answer; default: ``label``, if there is such a column.
    stop : str or None
        The arm at which the round stopped, by name or 0-based number.
    rule_stop : str or None
        The arm at which the rule itself would have stopped.
    failed : str or None
        The arm that was run and did not answer.

    Examples
    --------
    >>> Columns(context=("age", "bmi"), outputs=("small", "large"), label="truth").outputs
    ('small', 'large')
    """

    context: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    label: str | None = None
    stop: str | None = None
    rule_stop: str | None = None
    failed: str | None = None


class Layout(msgspec.Struct, frozen=True):
    """What the columns of a log hold; None where it has no such column."""

    arms: tuple[str, ...]  # names, in the order of the cascade
    context: tuple[str, ...]  # names of all coordinates: those of base, then what each arm adds
    base: tuple[str, ...]  # columns of the context before the first arm
    revealed: tuple[tuple[str, ...], ...]  # columns that each arm but the last adds
    outputs: tuple[str, ...]  # the column of each arm's output
    costs: tuple[str | None, ...]  # that of its cost; empty if none has any
    kind: str | None
    label: str | None
    stop: str | None
    rule_stop: str | None
    failed: str | None

    @property
    def answers(self) -> tuple[str, ...]:
        """The columns that are compared with one another: outputs, and the label if any."""
        return self.outputs if self.label is None else (*self.outputs, self.label)

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        optional = [self.stop, self.rule_stop, self.failed, self.kind, *self.costs]
        names = [*self.base, *chain(*self.revealed), *self.answers, *filter(None, optional)]
        return tuple(dict.fromkeys(names))

    @property
    def sources(self) -> dict[str, str]:
        """The columns of the context before the first arm, by their names in it."""
        return dict(zip(self.context, self.base, strict=False))

    def only(self, base: Sequence[str]) -> "Layout":
        """Return a layout that reads nothing but some columns."""
        none = dict.fromkeys(("kind", "label", "stop", "rule_stop", "failed"))
        empty = dict.fromkeys(("arms", "revealed", "outputs", "costs"), ())
        return msgspec.structs.replace(self, base=tuple(base), **none, **empty)


def arrange(names: Sequence[str], columns: Columns, file: str) -> Layout:
    """Find out what each column of a file is for; ``columns`` are the names that the user gave."""
    _check_distinct(names, "columns", file)
    outputs = _chosen(columns.outputs, OUTPUT, names, "outputs", file)
    base = _chosen(columns.context, CONTEXT, names, "context", file)
    if len(outputs) < 2:
        raise InvalidLogError(
            f"{file} has the output of {', '.join(outputs) or 'no arm'} only; a cascade has two "
            "arms or more"
        )
    arms = tuple(name.removeprefix(OUTPUT) for name in outputs)
    _check_distinct(arms, "arms", file)
    standard = columns.outputs is None
    of_arm: dict[str, int] = {}
    for name in names:
        if name.startswith((REVEALED, COST)):
            arm = _arm_of(name, arms)
            if arm is not None:
                of_arm[name] = arm
            elif standard:
                raise InvalidLogError(
                    f"{file}: column {name!r} names no arm; the arms are {listed(arms)}"
                )
    revealed = tuple(
        tuple(name for name, arm in of_arm.items() if arm == i and name.startswith(REVEALED))
        for i in range(len(arms) - 1)
    )
    prices = {arm: name for name, arm in of_arm.items() if name.startswith(COST)}
    given: dict[str, str | None] = {}
    for role in ("label", "stop", "rule_stop", "failed"):
        name: str | None = getattr(columns, role)
        if name is not None and name not in names:
            raise _missing([name], names, role, file)
        expected = role in names and (standard or role == "label")
        given[role] = role if name is None and expected else name
    later = {given["label"]: "the label", **dict.fromkeys(outputs, "an output")}
    if known := [f"{name!r} is {later[name]}" for name in base if name in later]:
        raise InvalidLogError(
            f"{file}: {', '.join(known)}, which nobody knows before the first arm runs: leave it "
            "out of the context"
        )
    return Layout(
        arms=arms,
        context=(
            *(name.removeprefix(CONTEXT) for name in base),
            *(name.removeprefix(REVEALED) for name in chain(*revealed)),
        ),
        base=base,
        revealed=revealed,
        outputs=outputs,
        costs=tuple(prices.get(i) for i in range(len(arms))) if prices else (),
        kind="kind" if standard and "kind" in names else None,
        **given,
    )


def _arm_of(column: str, arms: Sequence[str]) -> int | None:
    """Return the arm of a column ``revealed.<arm>.<name>`` or ``cost.<arm>``; None: it has none.

    Names of arms may hold dots; of two that fit, the longer is meant.
    """
    fits = [
        i
        for i, arm in enumerate(arms)
        if column == COST + arm or column.startswith(f"{REVEALED}{arm}.")
    ]
    return max(fits, key=lambda i: len(arms[i]), default=None)


def _chosen(
    given: tuple[str, ...] | None, prefix: str, names: Sequence[str], what: str, file: str
) -> tuple[str, ...]:
    """Return the columns that the user gave, or else those with the prefix."""
    if given is None:
        found = tuple(name for name in names if name.startswith(prefix))
        if not found:
            raise _missing([f"{prefix}<name>"], names, what, file)
        return found
    # In a file of the format, "age" is short for "context.age".
    found = tuple(name if name in names else prefix + name for name in given)
    absent = [name for name, full in zip(given, found, strict=True) if full not in names]
    if absent:
        raise _missing(absent, names, what, file)
    _check_distinct(found, what, file)
    return found


def _missing(absent: Sequence[str], names: Sequence[str], role: str, file: str) -> InvalidLogError:
    option = f"--{role}, " if role in ("context", "outputs", "label") else ""
    none = ' ("" and () if there are none)' if role == "context" else ""
    return InvalidLogError(
        f"{file} has no column {listed(absent)}; its columns are {listed(names)}. Name your own "
        f"with {option}Columns({role}=…){none}"
    )


def _check_distinct(names: Sequence[str], what: str, file: str) -> None:
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise InvalidLogError(f"{file}: {what} are named twice: {listed(twice)}")


def listed(names: Iterable[str]) -> str:
    """Return names for an error."""
    return ", ".join(map(repr, names)) or "none"


def fields_of(
    arms: Sequence[str],
    context: Sequence[str],
    revealed: Mapping[str, Sequence[str]],
    *,
    labels: bool,
    costs: bool,
) -> list[Field]:
    """Return the columns that a log of these arms has, or refuse them."""
    _check_names(arms, context, revealed)
    added = [(arm, name) for arm in arms for name in revealed.get(arm, ())]
    fields = [
        Field("id", ("id",), "text"),
        Field("time", ("time",), "time"),
        *(Field(CONTEXT + name, ("context", name), "number") for name in context),
        *(Field(f"{REVEALED}{arm}.{x}", ("revealed", arm, x), "number") for arm, x in added),
        *(Field(OUTPUT + arm, ("outputs", arm), "answer") for arm in arms),
        *(Field(name, (name,), "text") for name in ("stop", "rule_stop", "failed", "error")),
        *([Field("label", ("label",), "answer")] if labels else []),
        *(Field(COST + arm, ("costs", arm), "number") for arm in arms if costs),
    ]
    # What is written must be read as what it is: names with dots can be taken for others.
    names = [field.name for field in fields]
    try:
        layout = arrange(names, Columns(context=None if context else ()), "the log")
    except InvalidLogError as error:
        raise InvalidParameterError(str(error)) from None
    if layout.revealed != tuple(
        tuple(f"{REVEALED}{arm}.{name}" for name in revealed.get(arm, ())) for arm in arms[:-1]
    ):
        raise InvalidParameterError(
            "the names of arms and of what they reveal are ambiguous, because of dots in "
            f"them: {', '.join(f'{arm}.{name}' for arm, name in added)}"
        )
    return fields


def _check_names(
    arms: Sequence[str], context: Sequence[str], revealed: Mapping[str, Sequence[str]]
) -> None:
    groups = {"arms": arms, "coordinates of the context": context}
    groups |= {f"what arm {arm!r} reveals": names for arm, names in revealed.items()}
    for what, names in groups.items():
        if isinstance(names, str):
            raise InvalidParameterError(f"{what}: give a list of names, not the text {names!r}")
        for name in names:
            if not name or name != name.strip() or name != name.encode(errors="ignore").decode():
                raise InvalidParameterError(
                    f"{what}: {name!r} cannot be the name of a column; it must be text without "
                    "space around it"
                )
    if len(arms) < 2:
        raise InvalidParameterError(f"a log has two arms or more; give their names, not {arms!r}")
    for arm in revealed:
        if arm not in arms[:-1]:
            raise InvalidParameterError(
                f"revealed names {arm!r}, which is not an arm before the last; these are "
                f"{listed(arms[:-1])} (what the last arm reveals comes too late to decide "
                "anything)"
            )
