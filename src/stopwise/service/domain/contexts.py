"""Parse the contexts of requests into numbers."""

from collections.abc import Sequence
from typing import TypeAlias, cast

import msgspec
import numpy as np

from stopwise.arrays import Floats
from stopwise.errors import InvalidContextError, StopwiseError
from stopwise.logs.encoding import Encoding
from stopwise.policies.protocol import Policy
from stopwise.service.domain import spec as specs
from stopwise.service.domain.errors import InvalidRequest
from stopwise.service.domain.messages import CascadeSpec
from stopwise.text import shorten

Named: TypeAlias = dict[str, float | str | bool | None]
Contexts: TypeAlias = Sequence[list[float] | Named]


class ContextParser:
    """Parses the contexts of one cascade into rows of numbers."""

    def __init__(self, spec: CascadeSpec, policy: Policy) -> None:
        self._size = specs.context_size(spec)
        self._names = specs.context_names(spec) or ()
        self._features = policy.features
        encoding = spec.context
        self._encoding = Encoding.from_spec(encoding) if isinstance(encoding, dict) else None

    def rows(self, contexts: Contexts) -> Floats:
        """Return contexts as the rows of an array; reject the first invalid one."""
        try:  # the common case: lists of the right length
            rows = np.array(contexts, dtype=np.float64)
        except (TypeError, ValueError):
            rows = None
        if rows is None or rows.shape != (len(contexts), self._size):
            n = len(contexts)
            fields = ["context"] if n == 1 else [f"contexts[{k}]" for k in range(n)]
            rows = np.array(list(map(self._row, contexts, fields)), dtype=np.float64)
        if self._features is None and not np.isfinite(rows).all():  # features check this otherwise
            row, index = np.argwhere(~np.isfinite(rows))[0]
            place = "context" if len(rows) == 1 else f"contexts[{row}]"
            message = f"{place} must contain only finite numbers, got {rows[row, index]}"
            raise InvalidRequest(f"{message} at index {index}", field="context")
        return rows

    def _row(self, context: list[float] | Named, field: str) -> list[float]:
        if isinstance(context, list):
            if len(context) == self._size:
                return context
            message = f"{field} must have {self._size} numbers, got {len(context)}"
            raise InvalidRequest(message, field=field)
        if self._encoding is not None:
            try:
                return self._encoding.vector(context)
            except InvalidContextError as error:
                raise InvalidRequest(f"{field}: {error}", field=field) from None
        if context.keys() != set(self._names):
            if not self._names:
                message = (
                    f"{field} must be a list, because this cascade has no names for its numbers"
                )
                raise InvalidRequest(message, field=field)
            missing = sorted(set(self._names) - context.keys())
            unknown = sorted(context.keys() - set(self._names))
            problems: list[str] = []
            if missing:
                problems.append(f"missing: {', '.join(missing)}")
            if unknown:
                problems.append(f"unknown: {', '.join(unknown)}")
            raise InvalidRequest(f"{field}: {'; '.join(problems)}", field=field)
        values = [context[name] for name in self._names]
        for name, value in zip(self._names, values, strict=True):
            if type(value) not in (int, float):
                got = shorten(msgspec.json.encode(value).decode(), 60)
                message = f"{field} must contain only numbers, got {got} for {name!r}"
                raise InvalidRequest(message, field=field)
        return cast(list[float], values)

    def invalid(self, error: StopwiseError, field: str = "context") -> InvalidRequest:
        """Convert an error of the policy to an error of the API."""
        if not isinstance(error, InvalidContextError) or error.coordinate is None:
            return InvalidRequest(str(error), field=field)
        row = "" if error.row is None else f"row {error.row}, "
        message = f"{row}{self._name(error.coordinate)} {error.problem}"
        if error.advice:  # the advice of the policy is Python; give its JSON equivalent
            message += (
                ". The features of this cascade are bounded; create a cascade with a larger bound, "
                'such as "features": {"kind": "polynomial", "degree": 1, "bound": 100}'
            )
        return InvalidRequest(message, field=field)

    def _name(self, coordinate: int) -> str:
        """Return how messages refer to a number: by its name, or by its index if it has no name."""
        if coordinate < len(self._names):
            return repr(self._names[coordinate])
        return f"the number at index {coordinate}"
