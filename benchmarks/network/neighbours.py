"""Three edges between two processes, read while something else goes on; and how rates with it and without compare.

Read as fast as they come, the edges take all the processors there are: then whatever the other party costs in
processor time, its own process included, is missing from the rate, harm or no harm. Read at a fixed rate well below
that, nothing is missing unless somebody is made to wait. So both are measured, and the processor time of the other
party stands beside them.

Turns alternate, without, with, without, with, …, without. Each turn with is compared with the mean of those before
and after it, so that a machine that grows slower or faster harms neither; what is reported is the median of these
shares, with the lowest and the highest.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.network.endpoints import Feeder, RowMaker, open_writer, wait_for
from benchmarks.network.figures import between_share_percents
from benchmarks.network.peer import Peers

ROW_BYTES = 200
EDGES = 3
WARM_UP_S = 0.3
TURN_S = 0.7
TURNS_PER_REPEAT = 3
SHARE_OF_SATURATED = 0.3
SATURATED, THROTTLED = "saturated", "throttled"


@dataclass(frozen=True)
class Load:
    """How the neighbours are fed: batches a second for all of them together, None as fast as they are read."""

    name: str
    batches_per_s: float | None = None


def loads_of(peers: Peers, rows: RowMaker) -> tuple[Load, Load]:
    """Warm up, and find out what is well below saturation here and now."""
    rate_of_turn(peers, rows, Load(SATURATED))  # The first is always the slowest.
    rates = [rate_of_turn(peers, rows, Load(SATURATED)) for _ in range(3)]
    per_second = SHARE_OF_SATURATED * statistics.median(rates) * 1e6 / rows.row_count
    return Load(SATURATED), Load(THROTTLED, per_second)


def rate_of_turn(
    peers: Peers,
    rows: RowMaker,
    load: Load,
    *,
    has_stalled: bool = False,
    bad_location: str | None = None,
) -> float:
    """Return millions of rows per second that the consumer takes from all neighbours together.

    `has_stalled`: beside an edge on the same connection that is full and never read; `bad_location`: while the
    consumer also reads, as often as it fails, from the producer that is there.
    """
    number = peers.new_number()
    feeders = [
        Feeder(open_writer(peers.environment, number + index, 1, -1)) for index in range(EDGES)
    ]
    stalled = Feeder(open_writer(peers.environment, number + EDGES, 1, -1)) if has_stalled else None
    peers.order_reading(
        "neighbours",
        number,
        channels=1,
        row_bytes=ROW_BYTES,
        gates=EDGES,
        stalled=has_stalled,
        bad_location=bad_location,
        warm_up_s=WARM_UP_S,
        seconds=TURN_S,
    )
    due = time.monotonic()
    while not peers.has_answered():
        while stalled is not None and stalled.writer.is_available:
            stalled.writer.emit(rows.batch())
        if load.batches_per_s is not None:
            due = max(due + 1 / load.batches_per_s, time.monotonic() - 0.05)
            time.sleep(max(0.0, due - time.monotonic()))
        ready = [feeder.writer for feeder in feeders if feeder.writer.is_available]
        if not ready:
            wait_for(feeders[0].writer.on_available, 0.001)
        elif load.batches_per_s is None:
            for writer in ready:
                writer.emit(rows.batch())
        else:
            # Whose turn it is, so that all of them have the same rate, and one that is full loses its turn.
            feeders.append(feeders.pop(0))
            if feeders[0].writer.is_available:
                feeders[0].writer.emit(rows.batch())
    answer = peers.answer()
    for feeder in [*feeders, *([stalled] if stalled else [])]:
        feeder.writer.close()
    return answer["rows"] / TURN_S / 1e6


def compare(
    alone: Callable[[], float], beside: Callable[[], float], repeats: int
) -> dict[str, float]:
    """Take turns, and return rates and shares."""
    without, together = [alone()], list[float]()
    for _ in range(TURNS_PER_REPEAT * repeats):
        together.append(beside())
        without.append(alone())
    return described(without, together)


def described(without: Sequence[float], together: Sequence[float]) -> dict[str, Any]:
    """The figures of alternating turns."""
    shares = between_share_percents(together, without)
    return {
        "alone_mrows_per_s": round(statistics.median(without), 3),
        "beside_it_mrows_per_s": round(statistics.median(together), 3),
        "share_percent": round(statistics.median(shares), 1),
        "share_percent_least": round(min(shares), 1),
        "share_percent_most": round(max(shares), 1),
    }
