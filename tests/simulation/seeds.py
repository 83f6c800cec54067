"""How many seeds of each scenario run: some in the quick tests, all where HEADRACE_ALL_SEEDS is set."""

import os

_QUICK_SHARE = 3


def seeds(count: int, first: int = 0) -> range:
    """The first third of `count` seeds, at least two, or all of them."""
    is_all = bool(os.environ.get("HEADRACE_ALL_SEEDS"))
    return range(first, first + (count if is_all else max(2, count // _QUICK_SHARE)))
