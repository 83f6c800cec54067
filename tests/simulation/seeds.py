"""Number of seeds of each scenario: some in the quick tests, all where HEADRACE_ALL_SEEDS is set."""

import os


def seeds(count: int, first: int = 0, quick_step: int = 10) -> range:
    """Every tenth of `count` seeds, or every `quick_step`th, or all of them."""
    is_all = bool(os.environ.get("HEADRACE_ALL_SEEDS"))
    return range(first, first + count, 1 if is_all else quick_step)
