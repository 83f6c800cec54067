"""The Nexmark queries as Headrace programs: which kinds they read, and what they make of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.nexmark.streams import EventStreams
from headrace import DataStream, agg, col
from headrace.api.columns.aggregates import Aggregate
from headrace.common import Time
from headrace.datastream.window import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

TEN_SECONDS: Final = TumblingEventTimeWindows.of(Time.seconds(10))
DAY: Final = TumblingEventTimeWindows.of(Time.days(1))
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
END_OF_INPUT: Final = GlobalWindows.create_with_end_of_stream_trigger()


@dataclass(frozen=True)
class Query:
    """`reads`: kinds whose rows count as input. `build` makes the stream of results."""

    reads: tuple[str, ...]
    build: Callable[[EventStreams], DataStream]


def q0(events: EventStreams) -> DataStream:
    """Pass every bid through."""
    return events.bid("auction", "bidder", "price", "date_time")


def q1(events: EventStreams) -> DataStream:
    """Turn prices into another currency."""
    bids = events.bid("auction", "bidder", "price", "date_time")
    euros = (col("price") * 0.908).alias("price")
    return bids.select("auction", "bidder", euros, "date_time")


def q2(events: EventStreams) -> DataStream:
    """Keep the bids of some auctions."""
    return events.bid("auction", "price").filter(col("auction") % 123 == 0)


def q3(events: EventStreams) -> DataStream:
    """Say who sells in one category in some states."""
    auctions = events.auction("id", "seller", "category").filter(col("category") == 10)
    persons = events.person("id", "name", "city", "state")
    persons = persons.filter(col("state").is_in(["or", "id", "ca"]))
    sellers = persons.select(col("id").alias("person"), "name", "city", "state").key_by("person")
    joined = auctions.select("id", "seller").key_by("seller").join_rows(sellers)
    return joined.select("name", "city", "state", "id")


def q4(events: EventStreams) -> DataStream:
    """Say what auctions of each category were won for, on average, at the end of input."""
    won = _winning_prices(events, "category")
    return won.key_by("category").window(END_OF_INPUT).aggregate(agg.mean("final").alias("average"))


def q6(events: EventStreams) -> DataStream:
    """Say what each seller's last ten auctions to close were won for, on average, at the end of input."""
    won = _winning_prices(events, "seller", "expires")
    last = won.key_by("seller").window(END_OF_INPUT).largest_rows(10, "expires", "id")
    return last.key_by("seller").window(END_OF_INPUT).aggregate(agg.mean("final").alias("average"))


def _winning_prices(events: EventStreams, *columns: str) -> DataStream:
    """Return `id`, more columns and the `final` price of each auction that had a bid while it was open."""
    read = dict.fromkeys(("id", *columns, "date_time", "expires"))
    kept = dict.fromkeys(("id", *columns, "expires"))
    auctions = events.auction(*read).select(*kept, col("date_time").alias("opens"))
    bids = events.bid("auction", "price", "date_time").key_by("auction")
    pairs = bids.join_rows(auctions.key_by("id"))
    in_time = pairs.filter(col("date_time").between(col("opens"), col("expires")))
    prices = in_time.key_by("id", *columns).window(END_OF_INPUT)
    return prices.aggregate(agg.max("price").alias("final"))


def q5(events: EventStreams) -> DataStream:
    """Find the auctions with most bids within ten seconds, every two seconds."""
    bids = events.bid("auction", "date_time").key_by("auction")
    sliding = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2))
    counts = bids.window(sliding).aggregate(agg.count().alias("bids"))
    # All counts of a window bear its last millisecond, so each of these windows holds those of one.
    return counts.window_all(TumblingEventTimeWindows.of(Time.seconds(2))).rows_with_max("bids")


def q7(events: EventStreams) -> DataStream:
    """Find the highest bids, whole rows, of every ten seconds."""
    bids = events.bid("auction", "bidder", "price", "date_time")
    return bids.window_all(TEN_SECONDS).rows_with_max("price")


def q7max(events: EventStreams) -> DataStream:
    """Find the highest price of every ten seconds."""
    prices = events.bid("price", "date_time").window_all(TEN_SECONDS)
    return prices.aggregate(agg.max("price").alias("price"))


def q8(events: EventStreams) -> DataStream:
    """Say which persons opened an auction in the ten seconds in which they came."""
    persons = events.person("id", "name", "date_time").select("id", "name").key_by("id")
    sellers = events.auction("seller", "date_time").key_by("seller").window(TEN_SECONDS)
    # One row per seller and window, which bears the window's last millisecond.
    distinct = sellers.aggregate(agg.count().alias("auctions")).select("seller", "window_start")
    return persons.join_rows(distinct.key_by("seller"), TEN_SECONDS).select(
        "id", "name", "window_start"
    )


def q11(events: EventStreams) -> DataStream:
    """Count the bids of each bidder's sessions, which end after ten seconds without a bid."""
    bids = events.bid("bidder", "date_time").key_by("bidder")
    sessions = bids.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    return sessions.aggregate(agg.count().alias("bids"))


def q12(events: EventStreams) -> DataStream:
    """Count each bidder's bids of every ten seconds of event time.

    The reference has windows of processing time, whose counts no two runs share: nothing could be compared.
    """
    bids = events.bid("bidder", "date_time").key_by("bidder").window(TEN_SECONDS)
    return bids.aggregate(agg.count().alias("bids"))


def q15(events: EventStreams) -> DataStream:
    """Count each day's bids, bidders and auctions, in all and by price."""
    bids = events.bid("auction", "bidder", "price", "date_time")
    return bids.window_all(DAY).aggregate(*_by_price("bids"), *_different_by_price())


def q16(events: EventStreams) -> DataStream:
    """Count each channel's bids, bidders and auctions of a day, in all and by price; say when the last bid was."""
    bids = events.bid("channel", "auction", "bidder", "price", "date_time")
    minute = (col("date_time") % DAY_MS // MINUTE_MS).alias("minute")
    columns = bids.select("channel", "auction", "bidder", "price", minute).key_by("channel")
    last = agg.max("minute").alias("minute")
    return columns.window(DAY).aggregate(last, *_by_price("bids"), *_different_by_price())


def q17(events: EventStreams) -> DataStream:
    """Say of each auction and day how many bids there were, by price, and how high."""
    bids = events.bid("auction", "price", "date_time").key_by("auction").window(DAY)
    prices = [agg.min("price"), agg.max("price"), agg.mean("price"), agg.sum("price")]
    return bids.aggregate(*_by_price("bids"), *prices)


def q18(events: EventStreams) -> DataStream:
    """Find the last bid of each bidder on each auction, as it is at the end of input."""
    bids = _whole_bids(events).key_by("bidder", "auction").window(END_OF_INPUT)
    # By time alone which of two in one millisecond is the last would differ from run to run.
    return bids.largest_rows(1, "date_time", "price", "url", "extra")


def q19(events: EventStreams) -> DataStream:
    """Find the ten highest bids on each auction, as they are at the end of input."""
    bids = _whole_bids(events).key_by("auction").window(END_OF_INPUT)
    return bids.largest_rows(10, "price", "date_time", "bidder")


def _whole_bids(events: EventStreams) -> DataStream:
    return events.bid("auction", "bidder", "price", "channel", "url", "date_time", "extra")


def _by_price(name: str, count: Aggregate | None = None) -> list[Aggregate]:
    """Return `count` (of rows, where there is none) in all, and of cheap, middling and dear bids."""
    count = agg.count() if count is None else count
    price = col("price")
    return [
        count.alias(f"total_{name}"),
        count.where(price < 10_000).alias(f"rank1_{name}"),
        count.where((price >= 10_000) & (price < 1_000_000)).alias(f"rank2_{name}"),
        count.where(price >= 1_000_000).alias(f"rank3_{name}"),
    ]


def _different_by_price() -> list[Aggregate]:
    bidders = _by_price("bidders", agg.count_distinct("bidder"))
    return [*bidders, *_by_price("auctions", agg.count_distinct("auction"))]


def q20(events: EventStreams) -> DataStream:
    """Give bids of one category with their auctions."""
    auctions = events.auction("id", "seller", "category", "expires").filter(col("category") == 10)
    bids = events.bid("auction", "bidder", "price", "date_time")
    return bids.key_by("auction").join_rows(auctions.key_by("id"))


QUERIES: Final = {
    "q0": Query(("bid",), q0),
    "q1": Query(("bid",), q1),
    "q2": Query(("bid",), q2),
    "q3": Query(("person", "auction"), q3),
    "q4": Query(("auction", "bid"), q4),
    "q5": Query(("bid",), q5),
    "q6": Query(("auction", "bid"), q6),
    "q7": Query(("bid",), q7),
    "q7max": Query(("bid",), q7max),
    "q8": Query(("person", "auction"), q8),
    "q11": Query(("bid",), q11),
    "q12": Query(("bid",), q12),
    "q15": Query(("bid",), q15),
    "q16": Query(("bid",), q16),
    "q17": Query(("bid",), q17),
    "q18": Query(("bid",), q18),
    "q19": Query(("bid",), q19),
    "q20": Query(("auction", "bid"), q20),
}
