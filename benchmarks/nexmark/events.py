"""Nexmark's events: a seeded, vectorised generator with the proportions and the hot keys of the reference one.

Of 50 events one is a person, three are auctions and 46 are bids. Half of the bids go to one hot auction among the last
hundred, three quarters come from one hot bidder, three quarters of the auctions from one hot seller. Events are
`1 / EVENTS_PER_SECOND` apart in event time and arrive out of order by at most `DISORDER_MS`. The same seed and count
give the same rows on every machine.
Source: the Nexmark generator (Tucker, Tufte, Papadimos, Maier 2002; Apache Beam's NexmarkGenerator).
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

EVENTS_PER_SECOND: Final = 10_000
BASE_TIME_MS: Final = 1_700_000_000_000
DISORDER_MS: Final = 3_000
WATERMARK_DELAY_MS: Final = 4_000
CYCLE: Final = 50
PERSONS_PER_CYCLE: Final = 1
AUCTIONS_PER_CYCLE: Final = 3
BIDS_PER_CYCLE: Final = CYCLE - PERSONS_PER_CYCLE - AUCTIONS_PER_CYCLE
FIRST_PERSON: Final = 1_000
FIRST_AUCTION: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORY_COUNT: Final = 5
IN_FLIGHT_AUCTIONS: Final = 100
ACTIVE_PERSONS: Final = 1_000
HOT_AUCTION_RATIO: Final = 2
HOT_SELLER_RATIO: Final = 4
HOT_BIDDER_RATIO: Final = 4
HOT_EVERY: Final = 100
STATES: Final = ("az", "ca", "id", "or", "wa", "wy")
CITIES: Final = ("phoenix", "los angeles", "boise", "portland", "seattle", "cheyenne", "kent")
FIRST_NAMES: Final = ("peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah")
LAST_NAMES: Final = ("shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones")
CHANNELS: Final = ("google", "facebook", "baidu", "apple")

Longs = npt.NDArray[np.int64]


class Events:
    """Makes the rows of each kind for events [first, first + count) in order of event time; in whole cycles."""

    def __init__(self, first: int, count: int, seed: int) -> None:
        assert first % CYCLE == 0 and count % CYCLE == 0, "events come in whole cycles"
        self._first = first
        self._count = count
        self._random = np.random.default_rng([seed, first])

    def persons(self) -> pa.Table:
        """Return the persons: id, name, email_address, credit_card, city, state, date_time, extra."""
        numbers = self._numbers(0, PERSONS_PER_CYCLE)
        size = len(numbers)
        ids = FIRST_PERSON + numbers // CYCLE
        first_names, last_names = self._among(FIRST_NAMES, size), self._among(LAST_NAMES, size)
        names = _joined(" ", first_names, last_names)
        card = pa.array(self._random.integers(10**15, 10**16, size))
        return pa.table(
            {
                "id": ids,
                "name": names,
                "email_address": _joined("@", names, pa.array(["example.org"] * size)),
                "credit_card": card.cast(pa.string()),
                "city": self._among(CITIES, size),
                "state": self._among(STATES, size),
                "date_time": _times(numbers),
                "extra": self._padding(size),
            }
        )

    def auctions(self) -> pa.Table:
        """Return the auctions: id, item_name, initial_bid, date_time, expires, seller, category and more."""
        numbers = self._numbers(PERSONS_PER_CYCLE, AUCTIONS_PER_CYCLE)
        size = len(numbers)
        last_person = numbers // CYCLE
        times = _times(numbers)
        initial = self._prices(size)
        # An auction is open while about a hundred more begin, twice as long at most.
        horizon_ms = IN_FLIGHT_AUCTIONS * CYCLE // AUCTIONS_PER_CYCLE * 1000 // EVENTS_PER_SECOND
        return pa.table(
            {
                "id": FIRST_AUCTION + _auction_index(numbers),
                "item_name": _joined(" ", self._among(CITIES, size), self._among(LAST_NAMES, size)),
                "description": self._padding(size),
                "initial_bid": initial,
                "reserve": initial + self._prices(size),
                "date_time": times,
                "expires": times + 1 + self._random.integers(0, 2 * horizon_ms, size),
                "seller": FIRST_PERSON + self._person(last_person, HOT_SELLER_RATIO, 0),
                "category": FIRST_CATEGORY + self._random.integers(0, CATEGORY_COUNT, size),
                "extra": self._padding(size),
            }
        )

    def bids(self) -> pa.Table:
        """Return the bids: auction, bidder, price, channel, url, date_time, extra."""
        numbers = self._numbers(PERSONS_PER_CYCLE + AUCTIONS_PER_CYCLE, BIDS_PER_CYCLE)
        size = len(numbers)
        last_auction = numbers // CYCLE * AUCTIONS_PER_CYCLE + AUCTIONS_PER_CYCLE - 1
        is_hot = self._random.integers(0, HOT_AUCTION_RATIO, size) > 0
        reach = np.minimum(last_auction + 1, IN_FLIGHT_AUCTIONS)
        uniform = last_auction - (self._random.random(size) * reach).astype(np.int64)
        auction = np.where(is_hot, last_auction // HOT_EVERY * HOT_EVERY, uniform)
        channel = self._among(CHANNELS, size)
        page = pa.array(self._random.integers(0, 10_000, size)).cast(pa.string())
        return pa.table(
            {
                "auction": FIRST_AUCTION + auction,
                "bidder": FIRST_PERSON + self._person(numbers // CYCLE, HOT_BIDDER_RATIO, 1),
                "price": self._prices(size),
                "channel": channel,
                "url": _joined("/item/", _joined("", "https://www.", channel, ".com"), page),
                "date_time": _times(numbers),
                "extra": self._padding(size),
            }
        )

    def _numbers(self, begin: int, per_cycle: int) -> Longs:
        cycles = np.arange(self._first, self._first + self._count, CYCLE, dtype=np.int64)
        return (cycles[:, np.newaxis] + np.arange(begin, begin + per_cycle)).ravel()

    def _person(self, last_person: Longs, hot_ratio: int, hot_offset: int) -> Longs:
        size = len(last_person)
        is_hot = self._random.integers(0, hot_ratio, size) > 0
        reach = np.minimum(last_person + 1, ACTIVE_PERSONS)
        uniform = last_person - (self._random.random(size) * reach).astype(np.int64)
        return np.where(is_hot, last_person // HOT_EVERY * HOT_EVERY + hot_offset, uniform)

    def _prices(self, size: int) -> Longs:
        return np.round(10.0 ** (self._random.random(size) * 6) * 100).astype(np.int64)

    def _among(self, texts: tuple[str, ...], size: int) -> pa.Array:
        return pa.array(texts).take(pa.array(self._random.integers(0, len(texts), size)))

    def _padding(self, size: int) -> pa.Array:
        pool = [self._random.bytes(int(length)).hex() for length in range(8, 40)]
        return pa.array(pool).take(pa.array(self._random.integers(0, len(pool), size)))


def in_order_of_arrival(rows: pa.Table, seed: int) -> pa.Table:
    """Return rows as they arrive: each late by up to DISORDER_MS."""
    times = rows.column("date_time").to_numpy()
    delays = np.random.default_rng([seed, len(times)]).integers(0, DISORDER_MS, len(times))
    return rows.take(pa.array(np.argsort(times + delays, kind="stable")))


def _times(numbers: Longs) -> Longs:
    return BASE_TIME_MS + numbers * 1000 // EVENTS_PER_SECOND


def _auction_index(numbers: Longs) -> Longs:
    return numbers // CYCLE * AUCTIONS_PER_CYCLE + numbers % CYCLE - PERSONS_PER_CYCLE


def _joined(separator: str, *parts: Any) -> Any:
    return pc.call_function("binary_join_element_wise", [*parts, separator])
