"""The door for pushed DataFrames: credits, row offsets, retries, and who is refused."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.ids import JobId, OperatorId
from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import start_thread
from headrace.functions.ingest import IngestedBatch, IngestedEnd
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import ConnectionLostError, HandshakeError, IngestRefusedError
from headrace.network.ingest.sender import IngestSender
from headrace.network.ingest.server import IngestReceiver
from testkit.waiting import wait_until
from tests.integration.network.conftest import Starter
from tests.unit.network.exchange import SECRET, attempt

pytestmark = pytest.mark.integration
JOB, OPERATOR = JobId(b"j" * 16), OperatorId(b"o" * 16)


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + count))], names=["value"])


class Source:
    """A source subtask that takes what is pushed."""

    def __init__(
        self,
        environment: CreditBasedShuffleEnvironment,
        attempt_number: int = 0,
        accepted_row_counts: Mapping[int, int] = {},
    ) -> None:
        self.data = threading.Event()
        self.receiver: IngestReceiver = environment.ingest.register(
            JOB,
            OPERATOR,
            0,
            attempt("source", 0, attempt_number),
            self.data.set,
            accepted_row_counts,
        )

    def take(self) -> IngestedBatch | IngestedEnd:
        while (ingested := self.receiver.poll()) is None:
            assert self.data.wait(10), "nothing came"
            self.data.clear()
        return ingested

    def take_all(self, partition_count: int = 1) -> dict[int, list[int]]:
        """Rows by partition, until all partitions have ended."""
        taken: dict[int, list[int]] = {}
        ended = 0
        while ended < partition_count:
            ingested = self.take()
            values = taken.setdefault(ingested.partition, [])
            if isinstance(ingested, IngestedEnd):
                assert ingested.row_count == len(values)
                ended += 1
            else:
                assert ingested.row_offset == len(values)
                values += ingested.batch.column(0).to_pylist()
        return taken


@pytest.fixture(params=["unix", "tcp"])
def door(
    request: pytest.FixtureRequest, start: Starter, tmp_path: Path
) -> tuple[CreditBasedShuffleEnvironment, Any]:
    environment = start("a", tmp_path if request.param == "unix" else None)
    return environment, environment.start()


def sender(
    location: TaskManagerLocation,
    partition: int = 0,
    spark_attempt: int = 0,
    tls: TlsIdentity | None = None,
) -> IngestSender:
    return IngestSender(location, SECRET, JOB, OPERATOR, 0, partition, spark_attempt, tls=tls)


def push(
    location: TaskManagerLocation,
    partition: int,
    total: int,
    size: int,
    spark_attempt: int = 0,
    tls: TlsIdentity | None = None,
) -> int:
    """Push a whole partition as a Spark task does; return how many rows were already there."""
    with sender(location, partition, spark_attempt, tls) as pushing:
        for offset in range(pushing.accepted_row_count, total, size):
            pushing.send(rows(offset, min(size, total - offset)), offset)
        pushing.finish(total)
        return pushing.accepted_row_count


def test_partitions_arrive_whole_and_in_order(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment)
    pushing = [
        start_thread(f"push {number}", lambda number=number: push(location, number, 5000, 300))
        for number in range(3)
    ]
    taken = source.take_all(3)
    assert taken == {number: list(range(5000)) for number in range(3)}
    for thread in pushing:
        thread.join(10)
    source.receiver.close()


def test_partitions_arrive_over_tls_too(start: Starter, identity: TlsIdentity) -> None:
    environment = start("a", tls=identity)
    location = environment.start()
    source = Source(environment)
    pushing = start_thread("push", lambda: push(location, 0, 200_000, 50_000, tls=identity))
    assert source.take_all() == {0: list(range(200_000))}
    pushing.join(10)
    source.receiver.close()


def test_whoever_has_the_secret_but_not_the_key_pushes_nothing(
    start: Starter, identity: TlsIdentity
) -> None:
    environment = start("a", tls=identity)
    location = environment.start()
    stranger = generate_identity(time.time_ns() // 1_000_000)
    for tls in (stranger, None):
        with pytest.raises(ConnectionLostError):
            sender(location, tls=tls)


def test_a_pusher_refuses_a_source_that_speaks_plainly(
    start: Starter, identity: TlsIdentity
) -> None:
    environment = start("a")
    location = environment.start()
    with pytest.raises(ConnectionLostError):
        sender(location, tls=identity)


def test_a_pusher_waits_for_a_source_that_is_still_being_deployed(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    pushing = start_thread("push", lambda: push(location, 0, 10, 5))
    wait_until(lambda: bool(environment.ingest._parked))
    source = Source(environment)
    assert source.take_all() == {0: list(range(10))}
    pushing.join(10)
    source.receiver.close()


def test_without_credit_the_pusher_waits(door: tuple[CreditBasedShuffleEnvironment, Any]) -> None:
    environment, location = door
    source = Source(environment)
    sent: list[int] = []

    def pushing() -> None:
        with sender(location) as pusher:
            for number in range(20):
                pusher.send(rows(number, 1), number)
                sent.append(number)
            pusher.finish(20)

    thread = start_thread("push", pushing)
    wait_until(lambda: len(sent) == 4)
    thread.join(0.05)
    assert len(sent) == 4
    assert source.take_all() == {0: list(range(20))}
    thread.join(10)
    source.receiver.close()


def test_a_retried_task_goes_on_where_the_first_one_died(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment)
    first = sender(location)
    first.send(rows(0, 10), 0)
    first.send(rows(10, 10), 10)
    first._connection.abort()
    first.close()
    wait_until(lambda: source.receiver.partitions[0].accepted_row_count == 20)
    second = sender(location, spark_attempt=1)
    assert second.accepted_row_count == 20
    # Cut otherwise than the first time: what is known is dropped, row by row.
    second.send(rows(0, 15), 0)
    second.send(rows(15, 15), 15)
    finishing = start_thread("finish", lambda: second.finish(30))
    assert source.take_all() == {0: list(range(30))}
    finishing.join(10)
    second.close()
    assert push(location, 0, 30, 7, spark_attempt=2) == 30
    source.receiver.close()


def test_a_newer_attempt_closes_an_older_one(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment)
    older = sender(location, spark_attempt=1)
    newer = sender(location, spark_attempt=2)
    with pytest.raises(IngestRefusedError, match="attempt 2 of its Spark task took over"):
        older.finish(0)
    with pytest.raises(IngestRefusedError, match="attempt 2 of its Spark task already pushes it"):
        sender(location, spark_attempt=0)
    older.close()
    newer.close()
    source.receiver.close()


def test_a_closed_source_refuses(door: tuple[CreditBasedShuffleEnvironment, Any]) -> None:
    environment, location = door
    source = Source(environment)
    pusher = sender(location)
    source.receiver.close()
    with pytest.raises(IngestRefusedError, match="the source subtask has ended"):
        pusher.finish(0)
    pusher.close()


def test_a_restarted_source_begins_anew(door: tuple[CreditBasedShuffleEnvironment, Any]) -> None:
    environment, location = door
    old = Source(environment, 0)
    pusher = sender(location)
    pusher.send(rows(0, 5), 0)
    new = Source(environment, 1)
    with pytest.raises(IngestRefusedError, match="a newer attempt of the source took over"):
        pusher.finish(5)
    pusher.close()
    pushing = start_thread("push", lambda: push(location, 0, 10, 5))
    assert new.take_all() == {0: list(range(10))}
    pushing.join(10)
    old.receiver.close()
    new.receiver.close()


def test_nobody_at_home_is_said_within_the_timeout(start: Starter) -> None:
    environment = start("a", taskmanager_network_partition__request__timeout="50 ms")
    with pytest.raises(
        IngestRefusedError, match="the source subtask does not run on this task manager"
    ):
        sender(environment.start())


def test_a_pusher_without_the_secret_is_refused(start: Starter) -> None:
    location = start("a").start()
    with pytest.raises((HandshakeError, ConnectionLostError)):
        IngestSender(location, b"wrong" * 6 + b"--", JOB, OPERATOR, 0, 0, 0)


def test_a_gap_in_the_rows_ends_the_connection(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment)
    pusher = sender(location)
    pusher.send(rows(5, 5), 5)
    with pytest.raises(
        IngestRefusedError, match="rows of partition 0 begin at 5, but 0 have arrived so far"
    ):
        pusher.finish(10)
    pusher.close()
    source.receiver.close()


def test_a_lost_task_manager_is_named(start: Starter) -> None:
    environment = start("a")
    location = environment.start()
    source = Source(environment)
    pusher = sender(location)
    source.receiver.close()
    environment.close()
    with pytest.raises((ConnectionLostError, IngestRefusedError), match="task manager a"):
        pusher.finish(0)
    pusher.close()


def test_a_partition_goes_on_behind_the_rows_of_a_checkpoint(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment, accepted_row_counts={0: 700})
    counts: list[int] = []
    pushing = start_thread("push", lambda: counts.append(push(location, 0, 1000, 300)))
    first = source.take()
    assert isinstance(first, IngestedBatch)
    assert first.row_offset == 700
    assert first.batch.column(0).to_pylist()[0] == 700
    assert source.take() == IngestedEnd(0, 1000)
    pushing.join(10)
    assert counts == [700]
    source.receiver.close()


def test_a_paused_partition_waits_for_credit_while_others_go_on(
    door: tuple[CreditBasedShuffleEnvironment, Any],
) -> None:
    environment, location = door
    source = Source(environment)
    source.receiver.pause(frozenset({0}))
    pushing = [
        start_thread(f"push {number}", lambda number=number: push(location, number, 5000, 50))
        for number in range(2)
    ]
    other = source.take_all(1)
    assert other == {1: list(range(5000))}
    assert source.receiver.poll() is None
    assert source.receiver.partitions[0].accepted_row_count < 5000
    source.receiver.pause(frozenset())
    assert source.take_all(1) == {0: list(range(5000))}
    for thread in pushing:
        thread.join(10)
    source.receiver.close()
