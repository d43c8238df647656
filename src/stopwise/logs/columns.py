"""Which column of a log means what, and which columns `LogWriter` writes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    ``stop``, ``rule_stop`` and ``failed`` are read only if they are given too: in a table of your
    own such words may mean something else.

    Attributes
    ----------
    context : tuple of str or None
        The numbers known before the first arm; default: every ``context.*``. An empty tuple
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
    """What the columns of a log hold.

    Attributes
    ----------
    arms : tuple of str
        In the order of the cascade.
    base, outputs : tuple of str
        Columns: of the context before the first arm, and of each arm's output.
    revealed : tuple of tuple of str
        Columns that each arm but the last adds to the context.
    context : tuple of str
        Names of all coordinates, ``base`` first, then what each arm adds.
    label, stop, rule_stop, failed, kind : str or None
        Columns, where the log has them.
    costs : tuple of (str or None)
        The column of each arm's cost, where it has one; empty if none has.
    """

    arms: tuple[str, ...]
    context: tuple[str, ...]
    base: tuple[str, ...]
    revealed: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    label: str | None
    stop: str | None
    rule_stop: str | None
    failed: str | None
    costs: tuple[str | None, ...]
    kind: str | None

    @property
    def sees(self) -> tuple[int, ...] | None:
        """How many coordinates are known at each arm but the last; None if no arm adds any."""
        if not any(self.revealed):
            return None
        return tuple(
            len(self.base) + sum(map(len, self.revealed[: i + 1]))
            for i in range(len(self.revealed))
        )

    @property
    def answers(self) -> tuple[str, ...]:
        """The columns that are compared with one another: outputs, and the label if any."""
        return self.outputs if self.label is None else (*self.outputs, self.label)

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        added = [name for columns in self.revealed for name in columns]
        single = [self.stop, self.rule_stop, self.failed, self.kind, *self.costs]
        names = [*self.base, *added, *self.answers, *(name for name in single if name)]
        return tuple(dict.fromkeys(names))


def arrange(names: Sequence[str], columns: Columns, file: str) -> Layout:
    """Find out what each column of a file is for; ``columns`` are the names that a person gave.

    Examples
    --------
    >>> layout = arrange(["context.age", "output.a", "output.b"], Columns(), "log.csv")
    >>> layout.arms, layout.context
    (('a', 'b'), ('age',))
    """
    _check_distinct(names, "columns", file)
    outputs = _chosen(columns.outputs, OUTPUT, names, "outputs", file)
    base = _chosen(columns.context, CONTEXT, names, "context", file)
    if len(outputs) < 2:
        raise InvalidLogError(
            f"{file} has the output of {outputs[0] if outputs else 'no arm'} only; "
            "a cascade has two arms or more"
        )
    arms = tuple(name.removeprefix(OUTPUT) for name in outputs)
    _check_distinct(arms, "arms", file)
    standard = columns.outputs is None
    added = _of_arms(names, REVEALED, revealing_arm, arms, standard, file)
    revealed = tuple(tuple(name for name, arm in added if arm == i) for i in range(len(arms) - 1))
    paid = _of_arms(names, COST, _paid_arm, arms, standard, file)
    prices = {arm: name for name, arm in paid}
    given: dict[str, str | None] = {}
    for role in ("label", "stop", "rule_stop", "failed"):
        name: str | None = getattr(columns, role)
        if name is not None and name not in names:
            raise _missing([name], names, role, file)
        expected = role in names and (standard or role == "label")
        given[role] = role if name is None and expected else name
    return Layout(
        arms=arms,
        context=(
            *(name.removeprefix(CONTEXT) for name in base),
            *(name.removeprefix(REVEALED) for more in revealed for name in more),
        ),
        base=base,
        revealed=revealed,
        outputs=outputs,
        label=given["label"],
        stop=given["stop"],
        rule_stop=given["rule_stop"],
        failed=given["failed"],
        costs=tuple(prices.get(i) for i in range(len(arms))) if prices else (),
        kind="kind" if standard and "kind" in names else None,
    )


def revealing_arm(column: str, arms: Sequence[str]) -> int | None:
    """Return the arm of a column ``revealed.<arm>.<name>``; None if it names no arm.

    Names of arms may hold dots; of two that fit, the longer is meant.

    Examples
    --------
    >>> revealing_arm("revealed.gpt-3.5.tokens", ["gpt-3", "gpt-3.5"])
    1
    """
    fits = [i for i, arm in enumerate(arms) if column.startswith(f"{REVEALED}{arm}.")]
    return max(fits, key=lambda i: len(arms[i]), default=None)


def _paid_arm(column: str, arms: Sequence[str]) -> int | None:
    name = column.removeprefix(COST)
    return arms.index(name) if name in arms else None


def _chosen(
    given: tuple[str, ...] | None, prefix: str, names: Sequence[str], what: str, file: str
) -> tuple[str, ...]:
    """Return the columns that a person gave, or else those with the prefix."""
    if given is None:
        found = tuple(name for name in names if name.startswith(prefix))
        if not found:
            raise _missing([f"{prefix}<name>"], names, what, file)
        return found
    # A person may write "age" or "context.age" in a file of the format.
    found = tuple(name if name in names else prefix + name for name in given)
    absent = [name for name, full in zip(given, found, strict=True) if full not in names]
    if absent:
        raise _missing(absent, names, what, file)
    _check_distinct(found, what, file)
    return found


def _of_arms(
    names: Sequence[str],
    prefix: str,
    arm_of: Callable[[str, Sequence[str]], int | None],
    arms: Sequence[str],
    strict: bool,
    file: str,
) -> list[tuple[str, int]]:
    """Return the columns with this prefix, each with the arm it is about."""
    found: list[tuple[str, int]] = []
    for name in names:
        if name.startswith(prefix):
            arm = arm_of(name, arms)
            if arm is not None:
                found.append((name, arm))
            elif strict:
                raise InvalidLogError(
                    f"{file}: column {name!r} names no arm; the arms are {_listed(arms)}"
                )
    return found


def _missing(absent: Sequence[str], names: Sequence[str], what: str, file: str) -> InvalidLogError:
    how = {
        "context": 'Columns(context=("age", …)), or --context age,…; Columns(context=()) '
        "if there are no contexts",
        "outputs": 'Columns(outputs=("small", …)), or --outputs small,…',
    }.get(what, f'Columns({what}="…")')
    return InvalidLogError(
        f"{file} has no column {_listed(absent)}; its columns are {_listed(names)}. "
        f"Name your own with {how}"
    )


def _check_distinct(names: Sequence[str], what: str, file: str) -> None:
    seen: set[str] = set()
    twice = [name for name in names if name in seen or seen.add(name)]
    if twice:
        raise InvalidLogError(f"{file}: {what} are named twice: {_listed(dict.fromkeys(twice))}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def fields_of(
    arms: Sequence[str],
    context: Sequence[str],
    revealed: Mapping[str, Sequence[str]],
    *,
    labels: bool,
    costs: bool,
) -> list[Field]:
    """Return the columns that a log of these arms has, or refuse them.

    Examples
    --------
    >>> fields = fields_of(["a", "b"], ["age"], {}, labels=False, costs=False)
    >>> [field.name for field in fields][:5]
    ['id', 'time', 'context.age', 'output.a', 'output.b']
    """
    _check_names(arms, context, revealed)
    added = [(arm, name) for arm in arms for name in revealed.get(arm, ())]
    fields = [
        Field("id", ("id",), "text"),
        Field("time", ("time",), "time"),
        *(Field(CONTEXT + name, ("context", name), "number") for name in context),
        *(
            Field(f"{REVEALED}{arm}.{name}", ("revealed", arm, name), "number")
            for arm, name in added
        ),
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
    meant = tuple(
        tuple(f"{REVEALED}{arm}.{name}" for name in revealed.get(arm, ())) for arm in arms[:-1]
    )
    if layout.revealed != meant:
        raise InvalidParameterError(
            "the names of arms and of what they reveal are ambiguous, because of dots in "
            f"them: {', '.join(f'{arm}.{name}' for arm, name in added)}"
        )
    return fields


def _check_names(
    arms: Sequence[str], context: Sequence[str], revealed: Mapping[str, Sequence[str]]
) -> None:
    if len(arms) < 2:
        raise InvalidParameterError(f"a cascade has two arms or more, not {len(arms)}")
    groups = {"arms": arms, "coordinates of the context": context}
    groups |= {f"what arm {arm!r} reveals": names for arm, names in revealed.items()}
    for what, names in groups.items():
        if isinstance(names, str):
            raise InvalidParameterError(f"{what}: give a list of names, not the text {names!r}")
        for name in names:
            if not name.strip() or name != name.strip() or not _encodable(name):
                raise InvalidParameterError(
                    f"{what}: {name!r} cannot be the name of a column; it must be text without "
                    "space around it"
                )
        if len(set(names)) < len(names):
            raise InvalidParameterError(f"{what}: a name is given twice in {list(names)}")
    for arm in revealed:
        if arm not in arms[:-1]:
            raise InvalidParameterError(
                f"revealed names {arm!r}, which is not an arm before the last; these are "
                f"{', '.join(map(repr, arms[:-1]))} (what the last arm reveals comes too late to "
                "decide anything)"
            )


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
