"""The bounded programs: what each computes, what it reads, and the functions of Python that the engines share.

Standard library only, as PyFlink has an interpreter of its own. Money of orders is in cents, all columns are integers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

SIZE_MS: Final = 10_000
HIGH_PRICE: Final = 1_000_000
SHIPPED_UNTIL: Final = 2_000
FIRST_ORDER_DAY: Final = 1_000
PYFLINK_MODE_VARIABLE: Final = "HEADRACE_BATCH_REPORT_PYFLINK"
Columns = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Query:
    """`does`: in words. `reads`: columns by kind. `is_per_record`: a Python function sees each record.

    `pyflink_max`: events that PyFlink is given at most, so that a turn of it takes less than a minute; 0: all.
    """

    does: str
    reads: Columns
    is_per_record: bool
    pyflink_max: int = 0


QUERIES: Final[dict[str, Query]] = {
    "currency": Query(
        "Nexmark q1: the price of each bid in another currency, by a Python function of one record",
        {"bid": ("auction", "bidder", "price", "date_time")},
        is_per_record=True,
        pyflink_max=1_000_000,
    ),
    "expensive": Query(
        "for each bidder, how many bids were above a price: a keyed Python function of one record, with state",
        {"bid": ("bidder", "price")},
        is_per_record=True,
        pyflink_max=1_000_000,
    ),
    "highest": Query(
        "Nexmark q7: the highest price of every ten seconds of event time",
        {"bid": ("price", "date_time")},
        is_per_record=False,
    ),
    "newcomers": Query(
        "Nexmark q8: persons who opened an auction within the ten seconds in which they came",
        {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")},
        is_per_record=False,
    ),
    "pricing": Query(
        "TPC-H Q1: quantities and prices with discount and tax of the items shipped until a day, by status",
        {"item": ("status", "quantity", "price", "discount", "tax", "shipped")},
        is_per_record=False,
    ),
    "priorities": Query(
        "TPC-H Q3: the turnover of items of early orders, by priority of the order",
        {"item": ("order", "price", "discount"), "order": ("id", "day", "priority")},
        is_per_record=False,
    ),
}


def in_euros(price: int) -> float:
    """Return a price in another currency: the function of `currency`."""
    return price * 0.908


def next_count(count: int, price: int) -> int:
    """Return how many prices have been high so far: the function of `expensive`."""
    return count + (price > HIGH_PRICE)


def checksum(rows: Iterable[tuple[Any, ...]]) -> list[int]:
    """Return the number of rows, and a sum that does not depend on their order."""
    count = total = 0
    for row in rows:
        texts = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row]
        count += 1
        total += crc32("|".join(texts).encode())
    return [count, total]
