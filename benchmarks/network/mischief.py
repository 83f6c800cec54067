"""Do peers that stall, drip or talk nonsense harm the channels of others, over real sockets?

Three edges between two processes are read as fast as they come, once alone and once while a third process does harm to
the same producer, turn by turn. At least 90 % of the rate is the aim; what the harm itself costs in processor time, the
third process included, is in the figure where there are few processors.
"""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from benchmarks.network.endpoints import Feeder, RowMaker, open_writer
from benchmarks.network.figures import paired_share_percent
from benchmarks.network.isolation import ROW_BYTES, neighbours_mrows_per_s
from benchmarks.network.peer import Peers

HARMS = ("stalled", "dripping", "garbage", "strangers")


def measure_mischief(
    carrier: str, seconds: float, repeats: int, advance: Callable[[str], None]
) -> dict[str, Any]:
    """The neighbours' rate beside each kind of harm, as a share of that without."""
    rows = RowMaker(ROW_BYTES)
    found: list[dict[str, Any]] = []
    with Peers(carrier) as peers:
        neighbours_mrows_per_s(peers, rows, False, seconds)  # Warms up.
        for harm in HARMS:
            rates: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(repeats):
                for is_harmed in (False, True) if turn % 2 == 0 else (True, False):
                    with harmed(peers, rows, harm if is_harmed else None):
                        rate = neighbours_mrows_per_s(peers, rows, False, seconds)
                    rates[is_harmed].append(rate)
                    advance(f"beside a peer that is {harm}" if is_harmed else "without it")
            found.append(
                {
                    "carrier": carrier,
                    "harm": harm,
                    "alone_mrows_per_s": round(max(rates[False]), 3),
                    "beside_it_mrows_per_s": round(max(rates[True]), 3),
                    "share_percent": paired_share_percent(rates[True], rates[False]),
                }
            )
    return {"mischief": found}


@contextmanager
def harmed(peers: Peers, rows: RowMaker, harm: str | None) -> Generator[None]:
    """While a process does this harm to the producer; for None nothing happens."""
    if harm is None:
        yield
        return
    number = peers.new_number()
    feeder = Feeder(open_writer(peers.environment, number, 1, -1))
    while feeder.writer.is_available:
        feeder.writer.emit(rows.batch())
    location = msgspec.json.encode(peers.location).decode()
    command = [sys.executable, "-m", "benchmarks.network.bad_peer", harm, location, str(number)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        feeder.writer.close()
