"""The columns that `LogWriter` writes, in order."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.columns import CONTEXT, COST, OUTPUT, REVEALED, Columns, arrange

Row: TypeAlias = list[Any]  # one value for each field; None where there is none


class Field(msgspec.Struct, frozen=True):
    """A column: its name in a table, where it is in a JSON object, and what it holds."""

    name: str
    path: tuple[str, ...]
    holds: Literal["text", "time", "number", "answer"]


def lay_out(
    arms: Sequence[str],
    context: Sequence[str],
    revealed: Mapping[str, Sequence[str]],
    *,
    labels: bool,
    costs: bool,
) -> list[Field]:
    """Return the columns of a log, or say why there cannot be such a log.

    Examples
    --------
    >>> fields = lay_out(["a", "b"], ["age"], {}, labels=False, costs=False)
    >>> [field.name for field in fields][:5]
    ['id', 'time', 'context.age', 'output.a', 'output.b']
    """
    _check(arms, context, revealed)
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
        *(Field(name, (name,), "text") for name in ("stop", "wanted", "failed", "error")),
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
            "the names of arms and of what they reveal cannot be told apart, because of dots in "
            f"them: {', '.join(f'{arm}.{name}' for arm, name in added)}"
        )
    return fields


def _check(
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
