"""Number of seeds of each scenario: a few in the quick tests, more with HEADRACE_SEED_STEP, and all where that is 1."""

import os


def seeds(count: int, first: int = 0, quick_step: int = 10) -> range:
    """Every `quick_step`th of `count` seeds, or every so many-th as HEADRACE_SEED_STEP says."""
    step = os.environ.get("HEADRACE_SEED_STEP")
    return range(first, first + count, min(int(step), quick_step) if step else quick_step)
