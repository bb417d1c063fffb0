"""How kernels are compiled: the ways in which all compiled modules make numba's functions.

Only modules that `load` imports may import this one: numba is slow to import.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])

# numba sees numpy's types; to everybody else they are plain integers.
signed = cast("Callable[[Any], int]", np.int64)
unsigned = cast("Callable[[Any], int]", np.uint64)

READ_ONLY_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)


def entry(*arguments: Any) -> Callable[[_Function], _Function]:
    """Compile now for exactly these argument types, so that no later call has to."""

    def compile_now(function: _Function) -> _Function:
        compiled: _Function
        try:
            compiled = numba.njit(arguments, nogil=True, cache=True)(function)
        except RuntimeError:
            # No directory can hold the cache, as in a read-only container: compile every time.
            compiled = numba.njit(arguments, nogil=True)(function)
        return compiled

    return compile_now


def inlined(function: _Function) -> _Function:
    """Paste into every caller before types are known."""
    compiled: _Function = numba.njit(inline="always")(function)
    return compiled


def called(function: _Function) -> _Function:
    """Compile as a function of its own: what is rare need not be pasted everywhere."""
    compiled: _Function = numba.njit(nogil=True)(function)
    return compiled


def loading(kind: Any, *, swapped: bool = False) -> Callable[[int], int]:
    """A compiled function that loads such a number from an address, aligned or not."""

    def load(_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = context.get_data_type(kind).as_pointer()
            value = builder.load(builder.inttoptr(arguments[0], pointer), align=1)
            return builder.bswap(value) if swapped else value

        return kind(address), generate

    return cast("Callable[[int], int]", intrinsic(load))
