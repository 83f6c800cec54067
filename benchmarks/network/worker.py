"""The consuming TaskManager process: one JSON order per line on standard input, one JSON answer per line on output.

Arguments: the processor cores to keep to; none to take a place of its own.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import numpy as np

from benchmarks.network.endpoints import (
    DataPlane,
    RowMaker,
    Window,
    batches_of,
    open_gate,
    stamps_of,
    wait_for,
)
from benchmarks.network.figures import spread
from benchmarks.network.places import as_task_manager
from benchmarks.programs.exchange_consumer import connect, on_all_cores, raw_receive
from headrace.core.clock import SystemClock
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import NetworkError
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.task.input.gate_debloating import GateDebloating
from headrace.task.mailbox import MailboxTimers

SAMPLE_EVERY = 16
REPLY_BYTES = 32
# No task restarts more often; more would measure what it costs to make gates.
RESTART_PAUSE_S = 0.05


class Worker:
    """One process; `start` comes first."""

    def __init__(self) -> None:
        self._environment: CreditBasedShuffleEnvironment | None = None
        # Whatever is imported at the first batch is imported now: with pandas installed, pyarrow looks at it.
        stamps_of(RowMaker(16, 1).batch())

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked."""
        match order["do"]:
            case "start":
                self._start(order)
                return {"cores": sorted(os.sched_getaffinity(0))}
            case "throughput":
                return count_rows(self._gate(order), order)
            case "latency":
                return measure_latency(self._gate(order), order)
            case "credit":
                return credit_round_trips(self._gate(order), order)
            case "slow":
                assert self._environment is not None
                return take_slowly(self._gate(order), self._environment, order)
            case "neighbours":
                return self._neighbours(order)
            case "raw" | "ping":
                with nullcontext() if order["keeps_cores"] else on_all_cores():
                    return raw_answer(order)
            case other:
                raise ValueError(other)

    def close(self) -> None:
        """End the data plane."""
        if self._environment is not None:
            self._environment.close()

    def _start(self, order: dict[str, Any]) -> None:
        pem = order["pem"]
        tls = None if pem is None else TlsIdentity(pem[0].encode(), pem[1].encode())
        self._environment, _ = DataPlane(order["options"], None, tls).start("consumer")

    def _gate(self, order: dict[str, Any], offset: int = 0) -> SingleInputGate:
        assert self._environment is not None
        location = msgspec.json.decode(order["location"], type=TaskManagerLocation)
        number = order["number"] + offset
        return open_gate(self._environment, location, number, order["channels"], order["row_bytes"])

    def _neighbours(self, order: dict[str, Any]) -> dict[str, Any]:
        """Take in turn from `gates` gates, and open one more that is never looked at where one is to be stalled."""
        cpu_began = time.process_time()
        gates = [self._gate(order, index) for index in range(order["gates"])]
        stalled = [self._gate(order, order["gates"])] if order["stalled"] else []
        bad = None if order["bad_location"] is None else FailingReader(self._bad_gate, order)
        rows, all_rows, window = 0, 0, window_of(order)
        while window.left_s > 0:
            taken = 0
            if bad is not None:
                bad.poll()
            for gate in gates:
                element = gate.poll()
                if isinstance(element, BatchElement):
                    taken += element.batch.num_rows
            if taken:
                window.open()
            all_rows += taken
            if time.monotonic_ns() >= window.begin_ns:
                rows += taken
            if not taken:
                wait_for(gates[0].on_available, 0.002)
        for gate in [*gates, *stalled]:
            gate.close()
        failures = 0 if bad is None else bad.close()
        cpu_seconds = time.process_time() - cpu_began
        return {"rows": rows, "all_rows": all_rows, "cpu": cpu_seconds, "failures": failures}

    def _bad_gate(self, order: dict[str, Any]) -> SingleInputGate:
        assert self._environment is not None
        location = msgspec.json.decode(order["bad_location"], type=TaskManagerLocation)
        return open_gate(self._environment, location, order["number"], 1, order["row_bytes"])


class FailingReader:
    """Reads from a producer that breaks the protocol, and begins anew when it has failed."""

    def __init__(
        self, open_one: Callable[[dict[str, Any]], SingleInputGate], order: dict[str, Any]
    ) -> None:
        self._open = lambda: open_one(order)
        self._gate = self._open()
        self._failures = 0
        self._next_at = 0.0

    def poll(self) -> None:
        """Take what there is."""
        if time.monotonic() < self._next_at:
            return
        try:
            while self._gate.poll() is not None:
                pass
        except NetworkError:
            self._failures += 1
            self._gate.close()
            self._gate = self._open()
            self._next_at = time.monotonic() + RESTART_PAUSE_S

    def close(self) -> int:
        """End; return how often it failed."""
        self._gate.close()
        return self._failures


def window_of(order: dict[str, Any]) -> Window:
    return Window(order["warm_up_s"], order["seconds"])


def count_rows(gate: SingleInputGate, order: dict[str, Any]) -> dict[str, Any]:
    """Rows and batches taken within a window of time, and how old some of the rows were."""
    window = window_of(order)
    rows = batches = 0
    ages_ms: list[float] = []
    cpu_began, task_began = time.process_time(), time.thread_time()
    for batch in batches_of(gate, window):
        if batches == 0 and time.monotonic_ns() < window.begin_ns:
            cpu_began, task_began = time.process_time(), time.thread_time()
            continue
        rows += batch.num_rows
        batches += 1
        if batches % SAMPLE_EVERY == 0:
            ages_ms.append((time.monotonic_ns() - int(stamps_of(batch)[-1])) / 1e6)
    spent = {"cpu": time.process_time() - cpu_began, "task_cpu": time.thread_time() - task_began}
    gate.close()
    return {"rows": rows, "batches": batches, **spent, **spread(ages_ms, "loaded_ms")}


def measure_latency(gate: SingleInputGate, order: dict[str, Any]) -> dict[str, Any]:
    """How old rows are when they are taken, of those that were sent within the window."""
    ages_ms = np.concatenate([*ages_of(gate, order), np.zeros(0)])
    gate.close()
    return {"samples": len(ages_ms), **spread(ages_ms.tolist(), "latency_ms")}


def ages_of(gate: SingleInputGate, order: dict[str, Any]) -> Iterator[Any]:
    window = window_of(order)
    for batch in batches_of(gate, window):
        stamps = stamps_of(batch)
        now_ns = time.monotonic_ns()
        yield (now_ns - stamps[stamps >= window.begin_ns]) / 1e6


def credit_round_trips(gate: SingleInputGate, order: dict[str, Any]) -> dict[str, Any]:
    """Time from taking a batch until the next one is there, with one segment: its credit goes and comes."""
    trips_us: list[float] = []
    taken_ns = 0
    window = window_of(order)
    for _ in batches_of(gate, window):
        now_ns = time.monotonic_ns()
        if taken_ns > window.begin_ns:
            trips_us.append((now_ns - taken_ns) / 1000)
        taken_ns = now_ns
    gate.close()
    return {"trips": len(trips_us), **spread(trips_us, "credit_us", 1)}


def take_slowly(
    gate: SingleInputGate, environment: CreditBasedShuffleEnvironment, order: dict[str, Any]
) -> dict[str, Any]:
    """Take so many bytes a second, with debloating where the options say so; how old were the rows?"""
    timers = MailboxTimers(SystemClock())
    idle_ms = 0.0
    debloating = GateDebloating([gate], environment.settings, timers, lambda: idle_ms)
    debloating.start()
    ages_ms: list[float] = []
    due = time.monotonic()
    window = window_of(order)
    for batch in batches_of(gate, window):
        now_ns = time.monotonic_ns()
        if now_ns >= window.begin_ns:
            ages_ms.append((now_ns - int(stamps_of(batch)[0])) / 1e6)
        timers.fire_due()
        # What is slow is the task, so that to debloating this is no idleness.
        due = max(due, time.monotonic() - 0.1)
        due += batch.num_rows * order["row_bytes"] / order["bytes_per_s"]
        time.sleep(max(0.0, due - time.monotonic()))
    gate.close()
    return {"rows_seen": len(ages_ms), **spread(ages_ms, "in_flight_ms", 1)}


def raw_answer(order: dict[str, Any]) -> dict[str, Any]:
    """Do the same work over blocking sockets."""
    if order["do"] == "raw":
        return raw_receive(order["address"], order["size"])
    return raw_round_trips(order["address"], order["count"], order["size"])


def raw_round_trips(address: Any, count: int, size: int) -> dict[str, Any]:
    """As `credit_round_trips`, over a blocking socket: answer each message with a few bytes, await the next."""
    trips_us: list[float] = []
    reply = bytes(REPLY_BYTES)
    buffer = bytearray(size)
    with connect(address) as connection:
        taken_ns = 0
        for _ in range(count):
            received = 0
            while received < size:
                received += connection.recv_into(memoryview(buffer)[received:])
            now_ns = time.monotonic_ns()
            if taken_ns:
                trips_us.append((now_ns - taken_ns) / 1000)
            taken_ns = now_ns
            connection.sendall(reply)
    return spread(trips_us, "raw_us", 1)


def main() -> None:
    with as_task_manager([int(core) for core in sys.argv[1:]]):
        worker = Worker()
        for line in sys.stdin:
            print(json.dumps(worker.answer(json.loads(line))), flush=True)
        worker.close()


if __name__ == "__main__":
    main()
