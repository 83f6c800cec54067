"""The Nexmark queries as Headrace programs: which kinds they read, and what they make of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.nexmark.streams import EventStreams
from headrace import DataStream, agg, col
from headrace.common import Time
from headrace.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)


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
    return bids.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).rows_with_max("price")


def q8(events: EventStreams) -> DataStream:
    """Say which persons opened an auction in the ten seconds in which they came."""
    window = TumblingEventTimeWindows.of(Time.seconds(10))
    persons = events.person("id", "name", "date_time").select("id", "name").key_by("id")
    sellers = events.auction("seller", "date_time").key_by("seller").window(window)
    # One row per seller and window, which bears the window's last millisecond.
    distinct = sellers.aggregate(agg.count().alias("auctions")).select("seller", "window_start")
    return persons.join_rows(distinct.key_by("seller"), window).select("id", "name", "window_start")


def q11(events: EventStreams) -> DataStream:
    """Count the bids of each bidder's sessions, which end after ten seconds without a bid."""
    bids = events.bid("bidder", "date_time").key_by("bidder")
    sessions = bids.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    return sessions.aggregate(agg.count().alias("bids"))


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
    "q5": Query(("bid",), q5),
    "q7": Query(("bid",), q7),
    "q8": Query(("person", "auction"), q8),
    "q11": Query(("bid",), q11),
    "q20": Query(("auction", "bid"), q20),
}
