"""Producer and consumer process of one measurement, and raw sockets between the same two.

Both keep to processor cores of their own, as TaskManagers do (places.py). Raw sockets are measured so too, and on all
cores, which may be faster or slower: the rival is whichever is better.
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks.network.endpoints import DataPlane, Feeder, RowMaker, open_writer
from benchmarks.network.places import as_task_manager
from benchmarks.network.worker import REPLY_BYTES
from benchmarks.programs.exchange_consumer import on_all_cores
from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.core.shuffle_descriptors import TaskManagerLocation

UNIX, TCP, TLS = "unix", "tcp", "tls"
ANSWER_SECONDS = 90


class Peers:
    """This process, which produces, and one that consumes. `carrier`: unix, tcp or tls.

    The consumer takes a place of its own, or keeps to `consumer_cores`: those of another consumer that rests meanwhile.
    """

    def __init__(
        self,
        carrier: str,
        options: dict[str, str] | None = None,
        consumer_cores: Sequence[int] = (),
    ) -> None:
        self.carrier = carrier
        self._directory = tempfile.TemporaryDirectory()
        self._place = ExitStack()
        # Before any thread is started: those have the cores of the one that starts them.
        self.cores = self._place.enter_context(as_task_manager())
        tls = generate_identity(time.time_ns() // 1_000_000) if carrier == TLS else None
        unix = self._directory.name if carrier == UNIX else None
        self.environment, self._location = DataPlane(options or {}, unix, tls).start("producer")
        command = [sys.executable, "-m", "benchmarks.network.worker", *map(str, consumer_cores)]
        with on_all_cores():
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self._number = 0
        self._due = 0.0
        self._answers = select.poll()
        assert self._process.stdout is not None
        self._answers.register(self._process.stdout, select.POLLIN)
        self.order(do="start", options=options or {}, pem=_pem(tls))
        self.consumer_cores: tuple[int, ...] = tuple(self.answer()["cores"])

    @property
    def location(self) -> TaskManagerLocation:
        """Where this process, the producer, is reached."""
        return self._location

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *_: object) -> None:
        self.environment.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._place.close()
        self._directory.cleanup()

    def order(self, **order: Any) -> None:
        """Have the consuming process begin something."""
        assert self._process.stdin is not None
        self._due = time.monotonic() + ANSWER_SECONDS
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return what the last order gave; raises where the consumer has ended, or is silent for too long."""
        assert self._process.stdout is not None
        while not self.has_answered(0.5):
            pass
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the consuming process ended; its error is above")
        return json.loads(line)

    def has_answered(self, wait_s: float = 0.0) -> bool:
        """Whether `answer` would return at once; raises TimeoutError where it has been due for long."""
        is_there = bool(self._answers.poll(1000 * wait_s))
        if not is_there and time.monotonic() > self._due:
            raise TimeoutError(f"the consuming process said nothing for {ANSWER_SECONDS} s")
        return is_there

    def new_number(self) -> int:
        """Return a number for a partition that was not there before."""
        self._number += 1000
        return self._number

    def order_reading(self, do: str, number: int, **order: Any) -> None:
        """Have the consumer read partition `number` of this process."""
        location = msgspec.json.encode(self._location).decode()
        self.order(do=do, location=location, number=number, **order)

    def pump(
        self,
        do: str,
        rows: RowMaker,
        row_bytes: int,
        channels: int,
        timeout_ms: int,
        *,
        warm_up_s: float,
        seconds: float,
        batches_per_s: float | None = None,
        **order: Any,
    ) -> dict[str, Any]:
        """Feed one keyed edge for a while (at a rate, else as fast as it takes); return the consumer's answer.

        With it: `producer_cpu_s_per_mrow`, and `producing_task_cpu_s_per_mrow` of the thread that feeds.
        """
        number = self.new_number()
        writer = open_writer(self.environment, number, channels, timeout_ms)
        feeder = Feeder(writer)
        cpu_began, task_began = time.process_time(), time.thread_time()
        records_began = writer.records_out
        self.order_reading(
            do,
            number,
            channels=channels,
            row_bytes=row_bytes,
            warm_up_s=warm_up_s,
            seconds=seconds,
            **order,
        )
        if batches_per_s is None:
            feeder.feed(rows, self.has_answered)
        else:
            feeder.feed_slowly(rows, batches_per_s, self.has_answered)
        cpu_seconds, task_seconds = (
            time.process_time() - cpu_began,
            time.thread_time() - task_began,
        )
        rows_fed = max(1, writer.records_out - records_began)
        answer = self.answer()
        writer.close()
        return answer | {
            "producer_cpu_s_per_mrow": cpu_seconds / rows_fed * 1e6,
            "producing_task_cpu_s_per_mrow": task_seconds / rows_fed * 1e6,
        }

    def raw_bytes_per_s(
        self, messages: Sequence[pa.Buffer], seconds: float, piece: int, *, keeps_cores: bool
    ) -> float:
        """Bytes per second that blocking sockets move, sent in pieces of about so many bytes, for about so long.

        `keeps_cores`: both processes on the cores that the exchange has, else on all there are.
        """
        with nullcontext() if keeps_cores else on_all_cores():
            return self._raw_bytes_per_s(messages, seconds, piece, keeps_cores)

    def _raw_bytes_per_s(
        self, messages: Sequence[pa.Buffer], seconds: float, piece: int, keeps_cores: bool
    ) -> float:
        pieces = [part for message in messages for part in _pieces(message, piece)]
        trial_bytes = 64 << 20
        trial_s = self._raw_seconds(pieces, trial_bytes, keeps_cores)
        size = max(trial_bytes, int(trial_bytes * seconds / trial_s))
        return size / self._raw_seconds(pieces, size, keeps_cores)

    def raw_round_trips(self, size: int, count: int) -> dict[str, Any]:
        """Round trips of one message and a few bytes of answer, in turn."""
        message = bytes(size)
        with (
            on_all_cores(),
            self._raw_connection(
                do="ping", count=count, size=size, keeps_cores=False
            ) as connection,
        ):
            for _ in range(count):
                connection.sendall(message)
                connection.recv(REPLY_BYTES, socket.MSG_WAITALL)
            return self.answer()

    def _raw_seconds(self, pieces: Sequence[memoryview], size: int, keeps_cores: bool) -> float:
        with self._raw_connection(do="raw", size=size, keeps_cores=keeps_cores) as connection:
            began = time.perf_counter()
            left = size
            while left:
                for piece in pieces:
                    part = piece[:left]
                    connection.sendall(part)
                    left -= len(part)
                    if not left:
                        break
            connection.recv(1)
            seconds = time.perf_counter() - began
            self.answer()
        return seconds

    @contextmanager
    def _raw_connection(self, **order: Any) -> Generator[socket.socket]:
        is_unix = self.carrier == UNIX
        place: Any = f"{self._directory.name}/raw-{os.getpid()}-{time.monotonic_ns()}"
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as server:
            server.bind(place if is_unix else ("127.0.0.1", 0))
            server.listen()
            server.settimeout(ANSWER_SECONDS)
            self.order(address=server.getsockname(), **order)
            connection, _ = server.accept()
            if not is_unix:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                yield connection


def _pem(tls: TlsIdentity | None) -> list[str] | None:
    return None if tls is None else [tls.certificate.decode(), tls.private_key.decode()]


def _pieces(message: pa.Buffer, size: int) -> list[memoryview]:
    view = memoryview(message)
    return [view[start : start + size] for start in range(0, len(view), size)]
