"""Pushed partitions, without a connection: every row enters once, whoever pushes it how often, and who waits hears."""

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.core.ids import JobId, OperatorId
from headrace.functions.ingest import IngestedBatch, IngestedEnd
from headrace.network.batches.sealed_batch import SchemaAnnouncer
from headrace.network.errors import ConnectionLostError, IngestRefusedError, ProtocolError
from headrace.network.ingest.server import INGEST_BODY_BYTES_MAX, IngestServer, IngestSession
from headrace.network.wire.frame_splitter import FrameSplitter
from headrace.network.wire.frames import (
    AddCredit,
    Close,
    Error,
    ErrorCode,
    IngestAccept,
    IngestData,
    IngestEnd,
    IngestOpen,
    KeepAlive,
    Schema,
)
from headrace.network.wire.framing import Frame
from tests.unit.network.exchange import attempt
from tests.unit.network.simulated import VirtualLoop

JOB, OPERATOR = JobId(b"j" * 16), OperatorId(b"o" * 16)
CREDIT = 2
WAIT_MS = 1000


class LoopTransport:
    """Runs what is posted when the test lets the loop run."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()

    def post(self, callback: Callable[[], None]) -> None:
        self.loop.schedule(0, callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return self.loop.schedule(delay_ms, callback)


class Door:
    """The server of one TaskManager, and the source subtask that takes what comes through it."""

    def __init__(self) -> None:
        self.transport = LoopTransport()
        self.server = IngestServer(cast(Any, self.transport), CREDIT, WAIT_MS)
        self.notices: list[int] = []

    def open_source(
        self, attempt_number: int = 0, accepted_row_counts: Mapping[int, int] | None = None
    ) -> "Source":
        receiver = self.server.register(
            JOB,
            OPERATOR,
            0,
            attempt("source", 0, attempt_number),
            lambda: self.notices.append(attempt_number),
            accepted_row_counts or {},
        )
        self.run()
        return Source(self, receiver)

    def run(self) -> None:
        self.transport.loop.run_for(1)


class Source:
    """What a subtask took: rows by partition, and the partitions that ended."""

    def __init__(self, door: Door, receiver: Any) -> None:
        self._door = door
        self.receiver = receiver
        self.rows: dict[int, list[int]] = {}
        self.ended: dict[int, int] = {}

    def take(self, count: int = 1000) -> int:
        """Take so many elements at most, and have their pushers answered; return how many there were."""
        taken = 0
        while taken < count and (ingested := self.receiver.poll()) is not None:
            taken += 1
            if isinstance(ingested, IngestedEnd):
                assert ingested.partition not in self.ended
                self.ended[ingested.partition] = ingested.row_count
            else:
                assert isinstance(ingested, IngestedBatch)
                known = self.rows.setdefault(ingested.partition, [])
                assert ingested.row_offset == len(known)
                known += ingested.batch.column(0).to_pylist()
        self._door.run()
        return taken


class Pusher:
    """A Spark task's connection, and what it was told."""

    peer = "a pusher"

    def __init__(self, door: Door, partition: int = 0, spark_attempt: int = 0) -> None:
        self.session = IngestSession(self, door.server)
        self._cutter = FrameSplitter("a pusher")
        self._announcer = SchemaAnnouncer()
        self.wake_count = 0
        self._open = IngestOpen(0, JOB, OPERATOR, 0, partition, spark_attempt)
        self.session.frame_received(self._open)

    def wake(self) -> None:
        self.wake_count += 1

    def told(self) -> list[Frame]:
        data = b"".join(bytes(part) for part in self.session.take_output(1 << 20))
        return [cut.frame for cut in self._cutter.cut(data)]

    def push(self, start: int, count: int) -> None:
        """Rows [start, start + count) of the partition, which are their numbers."""
        batch = pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})
        message = self._announcer.changed(batch.schema)
        if message is not None:
            self.session.frame_received(Schema(0, self._announcer.fingerprint, message))
        body = batch.serialize().to_pybytes()
        frame = IngestData(0, start, count, self._announcer.fingerprint, body)
        self.session.check_body(IngestData, frame, len(body))
        self.session.frame_received(frame)

    def finish(self, row_count: int) -> None:
        self.session.frame_received(IngestEnd(0, row_count))


def accept(row_count: int) -> IngestAccept:
    return IngestAccept(0, row_count, CREDIT)


def refusal(frames: list[Frame]) -> str:
    (error,) = frames
    assert isinstance(error, Error) and error.code == ErrorCode.INGEST_REFUSED
    return bytes(error.body).decode()


def test_a_partition_comes_once_and_its_pusher_hears_of_each_batch_that_was_taken() -> None:
    door = Door()
    source, pusher = door.open_source(), Pusher(door)
    assert pusher.told() == [accept(0)]
    pusher.push(0, 3)
    pusher.push(3, 2)
    assert door.notices == [0], "told once that something waits"
    assert pusher.told() == []
    wakes = pusher.wake_count
    assert source.take(1) == 1
    assert pusher.told() == [AddCredit(0, 1)] and pusher.wake_count == wakes + 1
    pusher.push(5, 1)
    pusher.finish(6)
    assert source.take() == 3
    assert pusher.told() == [AddCredit(0, 1), AddCredit(0, 1), IngestEnd(0, 6)]
    assert (source.rows, source.ended) == ({0: [0, 1, 2, 3, 4, 5]}, {0: 6})


def test_what_comes_without_credit_ends_the_connection() -> None:
    door = Door()
    source, pusher = door.open_source(), Pusher(door)
    pusher.push(0, 1)
    pusher.push(1, 1)
    with pytest.raises(ProtocolError, match="without credit"):
        pusher.push(2, 1)
    # Also where a body lies in the same bytes as its header, and both are looked at later.
    with pytest.raises(ProtocolError, match="without credit"):
        pusher.session.frame_received(IngestData(0, 2, 1, 0, b""))
    assert source.take() == 2


def test_a_task_that_is_tried_again_goes_on_behind_the_rows_that_are_here() -> None:
    door = Door()
    source, first = door.open_source(), Pusher(door)
    first.push(0, 3)
    first.push(3, 3)
    first.session.lost(ConnectionLostError("a pusher", "it died"))
    second = Pusher(door, spark_attempt=1)
    assert second.told() == [accept(6)]
    # It may cut its rows otherwise, and send again what it need not.
    second.push(0, 4)
    assert second.told() == [AddCredit(0, 1)]
    second.push(4, 4)
    assert source.take() == 3
    assert source.rows == {0: list(range(8))}
    second.finish(8)
    assert source.take() == 1
    assert first.told() == [accept(0)], "nobody is answered who has left"


def test_a_finished_partition_that_is_pushed_again_enters_once() -> None:
    door = Door()
    source, first = door.open_source(), Pusher(door)
    first.push(0, 2)
    first.finish(2)
    source.take()
    again = Pusher(door, spark_attempt=1)
    again.finish(2)
    assert again.told() == [accept(2), IngestEnd(0, 2)]
    assert source.take() == 0 and source.ended == {0: 2}


def test_a_partition_that_is_forgotten_takes_no_memory_although_its_pusher_leaves_later() -> None:
    door = Door()
    source, pusher = door.open_source(), Pusher(door)
    pusher.finish(0)
    source.take()
    source.receiver.forget_before(1)
    door.run()
    pusher.session.lost(ConnectionLostError("a pusher", "it left"))
    assert source.receiver.partitions == {}


def test_the_newest_attempt_pushes_and_older_ones_are_refused() -> None:
    door = Door()
    source, old = door.open_source(), Pusher(door, spark_attempt=1)
    old.push(0, 2)
    new = Pusher(door, spark_attempt=2)
    assert "attempt 2 of its Spark task took over" in refusal(old.told()[1:])
    late = Pusher(door, spark_attempt=0)
    assert "attempt 2 of its Spark task already pushes it" in refusal(late.told())
    old.push(2, 2)
    late.finish(1)
    new.push(2, 1)
    # The end of the old connection is not the end of the new one.
    old.session.lost(ConnectionLostError("a pusher", "it was refused"))
    newest = Pusher(door, spark_attempt=3)
    assert "attempt 3" in refusal(new.told()[1:])
    newest.push(3, 1)
    assert source.take() == 3
    assert source.rows == {0: [0, 1, 2, 3]}


def test_rows_that_are_missing_are_noticed() -> None:
    door = Door()
    source, pusher = door.open_source(), Pusher(door)
    pusher.push(0, 2)
    with pytest.raises(ProtocolError, match="rows of partition 0 begin at 3, but 2 have arrived"):
        pusher.push(3, 1)
    with pytest.raises(ProtocolError, match="after 3 rows, but 2 have arrived"):
        pusher.finish(3)
    assert source.take() == 1 and source.ended == {}


def test_a_partition_goes_on_behind_what_a_checkpoint_has_of_it() -> None:
    door = Door()
    source = door.open_source(accepted_row_counts={0: 4})
    source.rows[0] = [0, 1, 2, 3]
    pusher, other = Pusher(door), Pusher(door, partition=1)
    assert (pusher.told(), other.told()) == ([accept(4)], [accept(0)])
    pusher.push(2, 4)
    assert source.take() == 1 and source.rows == {0: [0, 1, 2, 3, 4, 5]}


def test_a_pusher_waits_for_its_source_and_is_refused_where_none_comes() -> None:
    door = Door()
    early, gone = Pusher(door), Pusher(door, partition=1)
    door.transport.loop.run_for(WAIT_MS - 10)
    gone.session.lost(ConnectionLostError("a pusher", "it died"))
    assert early.told() == []
    source = door.open_source()
    assert early.told() == [accept(0)] and gone.told() == []
    early.push(0, 1)
    # Its time to wait is not counted any more.
    door.transport.loop.run_for(2 * WAIT_MS)
    assert source.take() == 1
    assert early.told() == [AddCredit(0, 1)]
    source.receiver.close()
    door.run()
    assert "has ended" in refusal(early.told())
    alone = Pusher(door, partition=2)
    door.transport.loop.run_for(WAIT_MS + 1)
    assert "does not run on this task manager" in refusal(alone.told())
    door.open_source(1)
    assert alone.told() == [], "it was told, and is not let in any more"


def test_a_newer_attempt_of_the_source_takes_the_door_and_the_older_one_leaves_it_open() -> None:
    door = Door()
    old, pusher = door.open_source(0), Pusher(door)
    pusher.push(0, 1)
    new = door.open_source(1)
    assert "a newer attempt of the source took over" in refusal(pusher.told()[1:])
    old.receiver.close()
    door.run()
    again = Pusher(door, spark_attempt=1)
    assert again.told() == [accept(0)]
    again.push(0, 2)
    assert old.take() == 0 and new.take() == 1
    assert new.rows == {0: [0, 1]}
    for _ in range(2):
        new.receiver.close()
        door.run()
    assert "has ended" in refusal(again.told()[1:])


def test_an_older_attempt_that_leaves_while_a_newer_one_takes_the_door_leaves_it_open() -> None:
    door = Door()
    old = door.open_source(0)
    new = door.server.register(JOB, OPERATOR, 0, attempt("source", 0, 1), lambda: None)
    old.receiver.close()
    door.run()
    pusher = Pusher(door)
    assert pusher.told() == [accept(0)]
    pusher.push(0, 1)
    assert new.poll() is not None


def test_a_pusher_whose_source_came_and_left_at_once_waits_all_its_time_anew() -> None:
    door = Door()
    pusher = Pusher(door)
    door.transport.loop.run_for(WAIT_MS - 10)
    door.server.register(JOB, OPERATOR, 0, attempt("source"), lambda: None).close()
    door.transport.loop.run_for(WAIT_MS - 10)
    assert pusher.told() == []
    door.transport.loop.run_for(20)
    assert "does not run on this task manager" in refusal(pusher.told())


def test_a_pusher_that_was_refused_is_forgotten() -> None:
    door = Door()
    pusher = Pusher(door)
    known = weakref.ref(pusher.session)
    door.transport.loop.run_for(WAIT_MS + 1)
    assert "does not run on this task manager" in refusal(pusher.told())
    del pusher
    gc.collect()
    assert known() is None


def test_what_is_paused_waits_in_its_order_while_others_go_on() -> None:
    door = Door()
    source = door.open_source()
    pushers = [Pusher(door, partition) for partition in range(2)]
    source.receiver.pause(frozenset({0}))
    for start in range(CREDIT):
        for pusher in pushers:
            pusher.push(start, 1)
    assert source.take() == CREDIT and source.rows == {1: [0, 1]}
    assert [len(pusher.told()) - 1 for pusher in pushers] == [0, CREDIT]
    pushers[1].push(2, 1)
    source.receiver.pause(frozenset({1}))
    assert source.take(1) == 1
    source.receiver.pause(frozenset({0, 1}))
    assert source.take() == 0
    pushers[0].push(2, 1)
    assert source.take() == 0
    source.receiver.pause(frozenset())
    assert source.take() == 3
    assert source.rows == {0: [0, 1, 2], 1: [0, 1, 2]}


def test_what_a_pusher_may_not_say_ends_its_connection() -> None:
    door = Door()
    door.open_source()
    pusher = Pusher(door)
    with pytest.raises(ProtocolError, match="may not send a frame of type KeepAlive"):
        pusher.session.frame_received(KeepAlive())
    with pytest.raises(ProtocolError, match="may not send a frame of type IngestOpen"):
        pusher.session.frame_received(IngestOpen(0, JOB, OPERATOR, 0, 1, 0))
    with pytest.raises(ProtocolError, match="at most"):
        pusher.session.check_body(Schema, Schema(0, 0, b""), INGEST_BODY_BYTES_MAX + 1)
    with pytest.raises(IngestRefusedError, match="the pusher closed the connection"):
        pusher.session.frame_received(Close())
    door = Door()
    with pytest.raises(ProtocolError, match="may not send a frame of type IngestEnd"):
        Pusher(door).finish(0)
