"""Do peers that stall, drip or talk nonsense harm the channels of others, over real sockets?

Three edges between two processes are read while a third process does harm to the same producer, or (as a producer
itself) to the same consumer; while it does nothing; and while a process that talks to nobody takes as much of the
processors as the harmful one did: see neighbours.py. The share of the last is what says something about us, since a
peer on another machine would take none of ours. At least 90 % of it is the aim; `bad_cpu_percent` is what the third
process itself took of one processor.
"""

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.network.bad_peer import PRODUCER_HARMS
from benchmarks.network.endpoints import Feeder, RowMaker, open_writer
from benchmarks.network.neighbours import ROW_BYTES, Load, Turn, compare, loads_of, rate_of_turn
from benchmarks.network.peer import Peers
from benchmarks.programs.exchange_consumer import on_all_cores

HARMS = (
    "stalled",
    "dripping",
    "garbage",
    "strangers",
    "flooding",
    "chattering",
    "overgranting",
    *PRODUCER_HARMS,
)
LOADS = 2
READY_SECONDS = 30
NEGLIGIBLE_PERCENT = 1
"""Of a processor; with less there is nothing to compare with but the turns alone."""


def measure_mischief(carrier: str, repeats: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """The neighbours' rate beside each kind of harm, as a share of that without."""
    rows = RowMaker(ROW_BYTES)
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        peers = stack.enter_context(Peers(carrier))
        burner = stack.enter_context(ThirdProcess("burning", peers))
        loads = loads_of(peers, rows)
        for harm in HARMS:
            with ThirdProcess(harm, peers) as third:
                for load in loads:
                    figures = beside_harm(peers, rows, load, third, burner, repeats)
                    found.append({"carrier": carrier, "harm": harm, "load": load.name, **figures})
                    advance(f"beside a peer that is {harm}, {load.name}")
    return {"mischief": found}


class ThirdProcess:
    """A process that does one kind of harm, by turns. See bad_peer.py."""

    def __init__(self, harm: str, peers: Peers) -> None:
        self.harm = harm
        location = msgspec.json.encode(peers.location).decode()
        command = [sys.executable, "-m", "benchmarks.network.bad_peer", harm, location]
        with on_all_cores():
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def __enter__(self) -> "ThirdProcess":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def cpu_seconds(self) -> float:
        """Processor time that it has taken so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def active(self, number: int) -> Generator[str]:
        """Until the end of the block it does it; yields what it says of itself once it has begun."""
        assert self._process.stdout is not None
        self._say(number)
        if not select.select([self._process.stdout], [], [], READY_SECONDS)[0]:
            raise TimeoutError(f"the third process did not begin within {READY_SECONDS} s")
        ready = self._process.stdout.readline()
        if not ready:
            raise RuntimeError("the third process ended; its error is above")
        try:
            yield ready
        finally:
            self._say(number)

    def _say(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()


def beside_harm(
    peers: Peers,
    rows: RowMaker,
    load: Load,
    third: ThirdProcess,
    burner: ThirdProcess,
    repeats: int,
) -> dict[str, float]:
    cpu_percents: list[float] = []

    def beside() -> Turn:
        with harmed(peers, rows, third) as said:
            cpu, began = third.cpu_seconds, time.monotonic()
            bad_location = said if third.harm in PRODUCER_HARMS else None
            turn = rate_of_turn(peers, rows, load, bad_location=bad_location)
            cpu_percents.append(100 * (third.cpu_seconds - cpu) / (time.monotonic() - began))
        return turn

    def control() -> Turn:
        with burner.active(round(statistics.median(cpu_percents))):
            return rate_of_turn(peers, rows, load)

    beside()  # To know what it takes.
    takes_little = cpu_percents[0] < NEGLIGIBLE_PERCENT
    figures = compare(
        lambda: rate_of_turn(peers, rows, load), beside, None if takes_little else control, repeats
    )
    return figures | {"bad_cpu_percent": round(statistics.median(cpu_percents), 1)}


@contextmanager
def harmed(peers: Peers, rows: RowMaker, third: ThirdProcess) -> Generator[str]:
    """While the process does its harm; yields what it says of where it is."""
    number = peers.new_number()
    feeder = Feeder(open_writer(peers.environment, number, 1, -1))
    while feeder.writer.is_available:
        feeder.writer.emit(rows.batch())
    try:
        with third.active(number) as said:
            yield said
    finally:
        feeder.writer.close()
