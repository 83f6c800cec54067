"""Arrow's compute functions by name, and the divisions of Python, made of them."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import ProgramError


def call_arrow(function: str, *arguments: Any, **options: Any) -> Any:
    """Apply one of Arrow's compute functions, which the module makes while it is imported.

    ProgramError where this version of Arrow has none of that name.
    """
    if not hasattr(pc, function):
        raise ProgramError(
            f"pyarrow {pa.__version__} has no function '{function}': take a newer one"
        )
    return getattr(pc, function)(*arguments, **options)


def true_division(dividend: Any, divisor: Any) -> Any:
    """Return `/` of two Arrow expressions: floating, by zero inf or NaN."""
    # Arrow divides integers to integers and fails on zero; here / means what it means in Python and SQL's doubles.
    # The cast is not a safe one: integers beyond 2**53 are rounded, as in Python, where a safe one fails.
    return call_arrow(
        "divide", dividend.cast(pa.float64(), safe=False), divisor.cast(pa.float64(), safe=False)
    )


def floor_division(dividend: Any, divisor: Any) -> Any:
    """Return `//` of two Arrow expressions: rounded down; an integer zero as divisor fails the job."""
    whole = call_arrow("subtract_checked", dividend, call_arrow("modulo", dividend, divisor))
    # By the absolute value, and checked with the sign: Arrow's division of the smallest integer by -1 gives 0.
    quotient = call_arrow("divide", whole, call_arrow("abs_checked", divisor))
    # Of floating numbers the quotient is a whole one but for rounding; integers stay what they are.
    return call_arrow(
        "round", call_arrow("multiply_checked", quotient, call_arrow("sign", divisor))
    )
