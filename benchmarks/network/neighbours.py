"""Three edges between two processes, read while something else goes on; and how rates with it and without compare.

Read as fast as they come, the edges take all the processors there are: then whatever the other party costs in
processor time, its own process included, is missing from the rate, harm or no harm. Read at a fixed rate well below
that, nothing is missing unless somebody is made to wait. So both are measured, and the processor time of the other
party stands beside them.

The processor time of the two processes themselves is counted too: what they take more of it for as many rows is what
they spend on the other party (`spent_on_it_cpu_percent` of one processor), however busy the machine is.

Turns alternate: without the other party; with it; and, where it is a process, with one that takes as much of the
processors and talks to nobody (the control). Each turn with it is compared with the mean of those before and after it,
so that a machine that grows slower or faster harms neither; what is reported is the median of these shares, with the
lowest and the highest.
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
WARM_UP_S = 0.2
TURN_S = 0.5
TURNS_PER_REPEAT = 1
SHARE_OF_SATURATED = 0.3
SATURATED, THROTTLED = "saturated", "throttled"


@dataclass(frozen=True)
class Load:
    """How the neighbours are fed: batches a second for all of them together, None as fast as they are read."""

    name: str
    batches_per_s: float | None = None


@dataclass(frozen=True)
class Turn:
    """Of all neighbours together: millions of rows per second, and what a million took both processes."""

    mrows_per_s: float
    cpu_s_per_mrow: float


def loads_of(peers: Peers, rows: RowMaker) -> tuple[Load, Load]:
    """Warm up, and find out what is well below saturation here and now."""
    rate_of_turn(peers, rows, Load(SATURATED))  # The first is always the slowest.
    rates = [rate_of_turn(peers, rows, Load(SATURATED)).mrows_per_s for _ in range(3)]
    per_second = SHARE_OF_SATURATED * statistics.median(rates) * 1e6 / rows.row_count
    return Load(SATURATED), Load(THROTTLED, per_second)


def rate_of_turn(
    peers: Peers,
    rows: RowMaker,
    load: Load,
    *,
    has_stalled: bool = False,
    bad_location: str | None = None,
) -> Turn:
    """Return what the consumer takes from all neighbours together.

    `has_stalled`: beside an edge on the same connection that is full and never read; `bad_location`: while the
    consumer also reads, as often as it fails, from the producer that is there.
    """
    number = peers.new_number()
    feeders = [
        Feeder(open_writer(peers.environment, number + index, 1, -1)) for index in range(EDGES)
    ]
    stalled = Feeder(open_writer(peers.environment, number + EDGES, 1, -1)) if has_stalled else None
    cpu_began = time.process_time()
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
    cpu_seconds = time.process_time() - cpu_began + answer["cpu"]
    for feeder in [*feeders, *([stalled] if stalled else [])]:
        feeder.writer.close()
    return Turn(answer["rows"] / TURN_S / 1e6, cpu_seconds / max(1, answer["all_rows"]) * 1e6)


def compare(
    alone: Callable[[], Turn],
    beside: Callable[[], Turn],
    control: Callable[[], Turn] | None,
    repeats: int,
) -> dict[str, float]:
    """Take turns, and return rates and shares."""
    without, together, controls = [alone()], list[Turn](), list[Turn]()
    if control is not None:
        controls.append(control())
    for _ in range(TURNS_PER_REPEAT * repeats):
        together.append(beside())
        if control is not None:
            controls.append(control())
        without.append(alone())
    return described(without, together, controls)


def described(
    without: Sequence[Turn], together: Sequence[Turn], controls: Sequence[Turn] = ()
) -> dict[str, Any]:
    """The figures of alternating turns: shares of the control, where there is one, and of the rate alone."""
    of_alone = between_share_percents(rates_of(together), rates_of(without))
    shares = (
        between_share_percents(rates_of(together), rates_of(controls)) if controls else of_alone
    )
    spent = [turn.cpu_s_per_mrow for turn in together], [turn.cpu_s_per_mrow for turn in without]
    extra = statistics.median(spent[0]) - statistics.median(spent[1])
    return {
        "alone_mrows_per_s": round(statistics.median(rates_of(without)), 3),
        "beside_it_mrows_per_s": round(statistics.median(rates_of(together)), 3),
        "share_percent": round(statistics.median(shares), 1),
        "share_percent_least": round(min(shares), 1),
        "share_percent_most": round(max(shares), 1),
        "share_of_alone_percent": round(statistics.median(of_alone), 1),
        "spent_on_it_cpu_percent": round(100 * extra * statistics.median(rates_of(together)), 1),
    }


def rates_of(turns: Sequence[Turn]) -> list[float]:
    return [turn.mrows_per_s for turn in turns]
