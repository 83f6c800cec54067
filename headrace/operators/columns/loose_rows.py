"""When rows that have come are brought together with those that are in state already. Pure."""

from typing import Final

_LOOSE_ROWS_MIN: Final = 65_536


def are_enough_to_settle(loose_rows: int, settled_rows: int) -> bool:
    """Whether so many loose rows wait that a vectorised step is worth it, and at least as many as are in state."""
    return loose_rows >= max(_LOOSE_ROWS_MIN, settled_rows)
