"""How many seeds of each scenario run: some in the quick tests, all where HEADRACE_ALL_SEEDS is set."""

import os

_QUICK_STEP = 5


def seeds(count: int, first: int = 0) -> range:
    """Every fifth of `count` seeds, at least two, or all of them."""
    is_all = bool(os.environ.get("HEADRACE_ALL_SEEDS"))
    return range(first, first + count, 1 if is_all else min(_QUICK_STEP, -(-count // 2)))
