"""Contexts as requests give them, and as a policy takes them."""

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np

from stopwise.arrays import Floats
from stopwise.errors import InvalidContextError, StopwiseError
from stopwise.logs.encoding import Encoding
from stopwise.policies.protocol import Policy
from stopwise.service.domain import spec as specs
from stopwise.service.domain.errors import InvalidRequest
from stopwise.service.domain.messages import CascadeSpec

Named: TypeAlias = dict[str, float | str | bool | None]
Contexts: TypeAlias = Sequence[list[float] | Named]


class ContextParser:
    """Turns the contexts of one cascade into rows of numbers, or refuses them."""

    def __init__(self, spec: CascadeSpec, policy: Policy) -> None:
        self._size = specs.context_size(spec)
        self._places = {name: k for k, name in enumerate(specs.context_names(spec) or ())}
        self._features = policy.features
        given = spec.context
        self._encoding = Encoding.from_spec(given) if isinstance(given, dict) else None

    def rows(self, contexts: Contexts) -> Floats:
        """Return contexts as a table, or refuse the first that does not fit."""
        try:  # mostly every one is a list, and all have the right length
            rows = np.array(contexts, dtype=np.float64)
        except (TypeError, ValueError):
            rows = None
        if rows is None or rows.shape != (len(contexts), self._size):
            n = len(contexts)
            fields = ["context"] if n == 1 else [f"contexts[{k}]" for k in range(n)]
            rows = np.array(list(map(self._row, contexts, fields)), dtype=np.float64)
        if self._features is None and not np.isfinite(rows).all():  # features check it themselves
            raise InvalidRequest("a context must be finite numbers", field="context")
        return rows

    def _row(self, context: list[float] | Named, field: str) -> list[float]:
        if isinstance(context, list):
            if len(context) == self._size:
                return context
            words = f"{field} has {len(context)} numbers; this cascade's contexts have {self._size}"
            raise InvalidRequest(words, field=field)
        if self._encoding is not None:
            try:
                return self._encoding.vector(context)
            except InvalidContextError as error:
                raise InvalidRequest(f"{field}: {error}", field=field) from None
        if context.keys() != self._places.keys():
            if not self._places:
                words = f"{field}: this cascade's context has no names; give a list of numbers"
                raise InvalidRequest(words, field=field)
            missing, unknown = self._places.keys() - context, context.keys() - self._places
            parts = (("missing", missing), ("unknown", unknown))
            faults = [f"{what}: {', '.join(sorted(names))}" for what, names in parts if names]
            raise InvalidRequest(f"{field}: {'; '.join(faults)}", field=field)
        values = [context[name] for name in self._places]
        if any(type(value) not in (int, float) for value in values):
            raise InvalidRequest(f"{field}: this cascade's context has numbers only", field=field)
        return cast(list[float], values)

    def invalid(self, error: StopwiseError, field: str = "context") -> InvalidRequest:
        """Return an error of the policy in the terms of the API."""
        if not isinstance(error, InvalidContextError) or error.coordinate is None:
            return InvalidRequest(str(error), field=field)
        place = "" if error.row is None else f"row {error.row}, "
        message = f"{place}{self._name(error.coordinate)} {error.problem}"
        if error.advice:  # it is about Python
            message += (
                ". The features of a cascade have a range: create one with a larger bound, such as "
                '"features": {"kind": "polynomial", "degree": 1, "bound": 100}'
            )
        return InvalidRequest(message, field=field)

    def _name(self, coordinate: int) -> str:
        """Return the name of a number in messages; numbers that stages reveal have none."""
        names = tuple(self._places)
        return repr(names[coordinate]) if coordinate < len(names) else f"number {coordinate}"
