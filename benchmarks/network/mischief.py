"""Do peers that stall, drip or talk nonsense harm the channels of others, over real sockets?

Three edges between two processes are read once alone and once while a third process does harm to the same producer, or
(as a producer itself) to the same consumer, turn by turn: see neighbours.py. A turn begins when the third process has
done its harm for the first time: what it costs to start a process is no harm of ours. At least 90 % of the rate is the
aim; `bad_cpu_percent` is what the third process itself took of one processor.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.network.bad_peer import PRODUCER_HARMS
from benchmarks.network.endpoints import Feeder, RowMaker, open_writer
from benchmarks.network.neighbours import ROW_BYTES, Load, compare, loads_of, rate_of_turn
from benchmarks.network.peer import Peers

HARMS = ("stalled", "dripping", "garbage", "strangers", "overgranting", *PRODUCER_HARMS)
LOADS = 2


def measure_mischief(carrier: str, repeats: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """The neighbours' rate beside each kind of harm, as a share of that without."""
    rows = RowMaker(ROW_BYTES)
    found: list[dict[str, Any]] = []
    with Peers(carrier) as peers:
        for load in loads_of(peers, rows):
            for harm in HARMS:
                figures = beside_harm(peers, rows, load, harm, repeats)
                found.append({"carrier": carrier, "harm": harm, "load": load.name, **figures})
                advance(f"beside a peer that is {harm}, {load.name}")
    return {"mischief": found}


def beside_harm(
    peers: Peers, rows: RowMaker, load: Load, harm: str, repeats: int
) -> dict[str, float]:
    shares: list[float] = []

    def beside() -> float:
        with harmed(peers, rows, harm) as (process, location):
            cpu, began = cpu_seconds(process.pid), time.monotonic()
            bad_location = location if harm in PRODUCER_HARMS else None
            rate = rate_of_turn(peers, rows, load, bad_location=bad_location)
            shares.append((cpu_seconds(process.pid) - cpu) / (time.monotonic() - began))
        return rate

    figures = compare(lambda: rate_of_turn(peers, rows, load), beside, repeats)
    return figures | {"bad_cpu_percent": round(100 * statistics.median(shares), 1)}


@contextmanager
def harmed(peers: Peers, rows: RowMaker, harm: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """While a process does this harm; yields it, and what it says of where it is."""
    number = peers.new_number()
    feeder = Feeder(open_writer(peers.environment, number, 1, -1))
    while feeder.writer.is_available:
        feeder.writer.emit(rows.batch())
    location = msgspec.json.encode(peers.location).decode()
    command = [sys.executable, "-m", "benchmarks.network.bad_peer", harm, location, str(number)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        ready = process.stdout.readline()
        if not ready:
            raise RuntimeError("the bad peer ended; its error is above")
        yield process, ready
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
        feeder.writer.close()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
