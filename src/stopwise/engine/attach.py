"""Hand the whole state to compiled code as one small array of addresses.

A policy's state is some fifteen arrays. Passing them costs a microsecond or two a call, and each
use of one inside a kernel costs two atomic operations, because numba counts references. A
live system pays that several times a round. So Python passes where the arrays are, and `attach`
builds the `Bank` and the `Rule` over that memory, without owners to count.

This is the one unsafe place of the engine. It is sound because `Attachment` keeps the arrays
alive, and takes their addresses anew whenever they may have moved (`refresh`, after they grew).
"""

from typing import Any, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from stopwise.engine.arrays import Ints
from stopwise.engine.bank import N_COUNTERS, N_LINES, N_NUMBERS, TABLE_SIZE, Bank
from stopwise.engine.compiled import inlined
from stopwise.engine.gram import N_STATE
from stopwise.engine.rule import N_SETTINGS, Rule


def _pointer_to(dtype: Any) -> Any:
    """Return a kernel that reads an integer as the address of ``dtype`` values."""

    def typed(_context: Any, address: Any) -> Any:
        def cast_address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(dtype)(address), cast_address

    return intrinsic(typed)


_floats_at = _pointer_to(types.float64)
_ints_at = _pointer_to(types.int64)
_ints32_at = _pointer_to(types.int32)
_bytes_at = _pointer_to(types.uint8)
_carray = cast(Any, numba).carray


class Attachment:
    """Where a bank and a rule are in memory, in the form that `attach` reads.

    Attributes
    ----------
    where : ndarray of int64
        Shapes, then addresses.
    """

    def __init__(self, bank: Bank, rule: Rule) -> None:
        self._arrays = (*bank, *rule)
        n_models, n_grams = len(bank.models), len(bank.grams)
        n_arms, d = rule.gaps.shape[1], bank.vectors.shape[2]
        shapes = (n_models, n_grams, n_arms, d, bank.rows.shape[1], bank.bits.shape[1])
        self.where = np.array((*shapes, *(0,) * 3, *(0,) * len(self._arrays)), dtype=np.int64)
        self._bank = bank
        self.refresh()

    def refresh(self) -> None:
        """Take the addresses and the lengths of the growing arrays anew."""
        bank = self._bank
        self.where[6:9] = len(bank.visits), len(bank.rows), len(bank.bits)
        self.where[9:] = [array.ctypes.data for array in self._arrays]


@inlined
def attach(where: Ints) -> tuple[Bank, Rule]:
    """Return the bank and the rule that an `Attachment` describes."""
    m, g, n_arms, d, width, n_bytes = where[0], where[1], where[2], where[3], where[4], where[5]
    at = where[9:]
    bank = Bank(
        _carray(_ints_at(at[0]), (m, 4)),
        _carray(_ints_at(at[1]), (g, 4)),
        _carray(_floats_at(at[2]), (g, 2, d, d)),
        _carray(_floats_at(at[3]), (g, N_STATE)),
        _carray(_floats_at(at[4]), (m, 2, d, d)),
        _carray(_floats_at(at[5]), (m, N_STATE)),
        _carray(_floats_at(at[6]), (m, 4, d)),
        _carray(_floats_at(at[7]), (m, N_NUMBERS)),
        _carray(_ints_at(at[8]), (N_COUNTERS + n_arms,)),
        _carray(_ints32_at(at[9]), (where[6], g + m)),
        _carray(_ints32_at(at[10]), (TABLE_SIZE,)),
        _carray(_floats_at(at[11]), (where[7], width)),
        _carray(_bytes_at(at[12]), (where[8], n_bytes)),
        _carray(_floats_at(at[13]), (width,)),
        _carray(_bytes_at(at[14]), (m,)),
        _carray(_floats_at(at[15]), (d + N_LINES, d)),
    )
    rule = Rule(
        _carray(_floats_at(at[16]), (N_SETTINGS,)),
        _carray(_floats_at(at[17]), (2, n_arms, n_arms)),
        _carray(_ints_at(at[18]), (n_arms, n_arms)),
    )
    return bank, rule
