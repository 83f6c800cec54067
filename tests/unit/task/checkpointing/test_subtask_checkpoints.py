"""One subtask's part of a checkpoint: the order of its steps, what ends it, and what the coordinator hears."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason, CheckpointStorageError
from headrace.checkpoint.handles import NO_FILE, StateChunk, StateTable
from headrace.checkpoint.storage import snapshot_files
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, JobVertexId, OperatorId
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.state.backend import StateNotStorableError
from headrace.task.chain.operator_chain import FrozenOperator
from headrace.task.checkpointing.subtask_checkpoints import BarrierTimes, SubtaskCheckpoints
from headrace.task.mailbox import MailboxTimers

ATTEMPT = ExecutionAttemptId(
    JobId(b"j" * 16), ExecutionVertexId(JobVertexId(b"v" * 16), 0), attempt_number=0
)
OPERATOR = OperatorId(b"o" * 16)
CHUNK = StateChunk(StateTable.WATERMARKS, "", 0, NO_FILE, None, {})
NO_TIMES = BarrierTimes()
LARGE = bytes(100_000)
"""Too large to lie within its handle."""


@dataclass
class State:
    """See FrozenState. `on_write`: what happens meanwhile. `on_written`: and when all files are there."""

    log: list[str]
    on_write: Callable[[], None]
    on_written: Callable[[], None]

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        self.log.append("write")
        writer.write("own", LARGE)
        self.on_write()
        writer.write("own", LARGE)
        writer.write("shared", LARGE, is_shared=True)
        self.on_written()
        return [CHUNK]

    def discard(self) -> None:
        self.log.append("discard")


def _raise(text: str) -> Callable[[], None]:
    def raise_it() -> None:
        raise OSError(text)

    return raise_it


@dataclass
class World:
    """The surroundings of a subtask; `log` has what happened, in order. What would block waits in `beside`."""

    log: list[str] = field(default_factory=list[str])
    beside: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    on_write: Callable[[], None] = lambda: None
    on_written: Callable[[], None] = lambda: None
    freeze_error: Exception | None = None
    capture: InFlightOutput | None = None
    """What the barrier may still overtake; None where it has gone in line."""
    is_finished = False

    def __post_init__(self) -> None:
        output = SimpleNamespace(edge=SimpleNamespace(supports_unaligned=True))
        self.clock = ManualClock()
        environment = SimpleNamespace(
            attempt_id=ATTEMPT,
            clock=self.clock,
            inputs=(),
            outputs=(output,),
            listener=self,
            run_blocking=lambda name, body: self.beside.append(body),
            snapshots=SimpleNamespace(
                writer=lambda options, name: SubtaskStorage(options, name, Settings())
            ),
        )
        self.timers = MailboxTimers(self.clock)
        self.checkpoints = SubtaskCheckpoints(
            cast(Any, environment),
            cast(Any, self),
            cast(Any, [self]),
            self.timers,
            self._note_failed,
        )

    def _note_failed(self, error: BaseException) -> None:
        self.log.append(f"failed: {error}")

    def take(self, checkpoint_id: int, options: CheckpointOptions | None = None) -> bool:
        barrier = CheckpointBarrier(checkpoint_id, 0, options or CheckpointOptions())
        return self.checkpoints.take(barrier, NO_TIMES)

    def work_beside(self) -> None:
        while self.beside:
            self.beside.pop(0)()

    # As the chain of operators.

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self.log.append(f"prepare {checkpoint_id}")

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> list[FrozenOperator]:
        if self.freeze_error is not None:
            raise self.freeze_error
        self.log.append(f"freeze {checkpoint_id}")
        return [
            FrozenOperator(OPERATOR, [State(self.log, self.on_write, self.on_written)], CHUNK, ())
        ]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.log.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.log.append(f"aborted {checkpoint_id}")

    # As the writer of its only output.

    def emit_barrier(self, barrier: CheckpointBarrier) -> InFlightOutput:
        self.log.append(f"barrier {barrier.checkpoint_id}")
        return InFlightOutput(0) if self.capture is None else self.capture

    def emit_event(self, event: object) -> None:
        assert isinstance(event, CancelCheckpointMarker)
        self.log.append(f"cancel marker {event.checkpoint_id}")

    def time_out_barrier(self, checkpoint_id: int) -> None:
        self.log.append(f"overtake {checkpoint_id}")

    # As the listener.

    def checkpoint_acknowledged(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int, snapshot: Any, metrics: Any
    ) -> None:
        assert snapshot.operators[OPERATOR].chunks == (CHUNK, CHUNK)
        self.log.append(f"acknowledged {checkpoint_id}")

    def checkpoint_declined(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        self.log.append(f"declined {checkpoint_id}: {reason.name}: {text}")


def test_what_belongs_before_the_barrier_comes_first_and_state_is_frozen_behind_it() -> None:
    world = World()
    assert world.take(1)
    assert world.log == ["prepare 1", "barrier 1", "freeze 1"]
    world.work_beside()
    assert world.log[3:] == ["write", "discard", "acknowledged 1"]


def test_a_checkpoint_that_is_not_newer_than_the_last_is_none() -> None:
    world = World()
    world.take(2)
    world.log.clear()
    assert [world.take(2), world.take(1)] == [False, False]
    assert world.log == []


def test_of_a_checkpoint_given_up_before_its_barrier_those_behind_hear_and_nothing_is_frozen() -> (
    None
):
    world = World()
    world.checkpoints.notify_aborted(3, 0)
    world.log.clear()
    assert not world.take(3)
    assert world.log == ["cancel marker 3"]
    assert world.take(4)


def test_so_many_given_up_are_remembered_and_no_more() -> None:
    world = World()
    for checkpoint_id in range(1, 1001):
        world.checkpoints.notify_aborted(checkpoint_id, 0)
    assert world.take(1)
    assert not world.take(1000)


def test_state_that_cannot_be_written_declines_the_checkpoint_and_the_task_goes_on() -> None:
    world = World(on_write=_raise("no space left"))
    world.take(1)
    world.work_beside()
    assert world.log[3:] == [
        "write",
        "declined 1: CHECKPOINT_ASYNC_EXCEPTION: OSError: no space left",
        "discard",
    ]
    world.on_write = lambda: None
    world.take(2)
    world.work_beside()
    assert world.log[-1] == "acknowledged 2"


def test_state_that_can_never_be_written_fails_the_task_instead_of_checkpoint_after_checkpoint() -> (
    None
):
    world = World(on_write=_raise_not_storable)
    world.take(1)
    world.work_beside()
    assert world.log[3:] == [
        "write",
        "failed: operator 'Orders' keeps state that cannot be stored: a lock",
        "discard",
    ]


def test_a_task_that_is_ending_does_not_fail_of_state_that_can_never_be_written() -> None:
    world = World(on_write=_raise_not_storable)
    world.take(1)
    world.checkpoints.close()
    world.work_beside()
    assert not [line for line in world.log if line.startswith(("failed", "declined"))]


def _raise_not_storable() -> None:
    raise StateNotStorableError("Orders", "a lock")


def test_an_error_before_the_state_is_frozen_is_the_tasks() -> None:
    world = World(freeze_error=ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        world.take(1)
    assert world.beside == []


@pytest.mark.parametrize("moment", ["before", "while", "while it fails", "after"])
def test_a_checkpoint_given_up_before_it_is_written_is_not_answered(moment: str) -> None:
    world = World()

    def give_up() -> None:
        world.checkpoints.notify_aborted(1, 0)
        if moment == "while it fails":
            raise OSError("its folder is gone")

    world.on_write = give_up if moment.startswith("while") else world.on_write
    world.take(1)
    if moment == "before":
        give_up()
    world.work_beside()
    if moment == "after":
        give_up()
    assert world.log.count("acknowledged 1") == (1 if moment == "after" else 0)
    assert not any(entry.startswith("declined") for entry in world.log)
    assert world.log.count("discard") == 1
    assert world.log.count("write") == (0 if moment == "before" else 1)


def test_a_completion_that_was_never_heard_of_is_made_up_for_before_the_abort() -> None:
    world = World()
    world.take(1)
    world.take(2)
    world.log.clear()
    world.checkpoints.notify_aborted(2, 1)
    assert world.log == ["complete 1", "aborted 2"]
    world.log.clear()
    world.checkpoints.notify_complete(1)
    assert world.log == []


def test_completions_out_of_order_are_told_once_and_in_order() -> None:
    world = World()
    for checkpoint_id in (2, 1, 2, 3):
        world.checkpoints.notify_complete(checkpoint_id)
    assert world.log == ["complete 2", "complete 3"]


def test_writing_begins_when_all_outputs_say_what_the_barrier_overtook() -> None:
    world = World(capture=InFlightOutput(1))
    options = CheckpointOptions(aligned_timeout_ms=100)
    world.take(1, options)
    assert world.beside == []
    world.clock.advance_ms(99)
    world.timers.fire_due()
    assert "overtake 1" not in world.log
    world.clock.advance_ms(1)
    world.timers.fire_due()
    assert world.log[-1] == "overtake 1"
    assert world.capture is not None
    world.capture.answer(0, [])
    world.work_beside()
    assert world.log[-1] == "acknowledged 1"


def test_an_output_that_will_never_say_it_ends_the_part_without_an_answer() -> None:
    world = World(capture=InFlightOutput(1))
    world.take(1, CheckpointOptions(aligned_timeout_ms=100))
    assert world.capture is not None
    world.capture.abandon()
    world.work_beside()
    assert world.log[3:] == ["discard"]


@pytest.mark.parametrize("moment", ["amid its files", "behind its files", "as it fails"])
@pytest.mark.parametrize("whom", ["the checkpoint", "the task"])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_of_a_part_that_was_given_up_while_it_was_written_slowly_no_file_is_left(
    tmp_path: Path, moment: str, whom: str, is_deleted: bool
) -> None:
    world, options = World(), placed(tmp_path)

    def give_up() -> None:
        if whom == "the task":
            world.checkpoints.close()
        else:
            world.checkpoints.notify_aborted(1, 0)
        if is_deleted:
            # The JobMaster has no part in what is written from now on.
            shutil.rmtree(options.exclusive_uri)
        if moment == "as it fails":
            raise OSError("no space left")

    if moment == "behind its files":
        world.on_written = give_up
    else:
        world.on_write = give_up
    world.take(1, options)
    world.work_beside()
    assert world.log[-1] != "acknowledged 1"
    assert files_below(tmp_path) == ["of another checkpoint"]
    assert not Path(options.exclusive_uri).exists()


def test_of_a_part_that_cannot_be_written_no_file_is_left(tmp_path: Path) -> None:
    world = World(on_written=_raise("no space left"))
    world.take(1, placed(tmp_path))
    world.work_beside()
    assert any(line.startswith("declined 1") for line in world.log)
    assert files_below(tmp_path) == ["of another checkpoint"]


def test_files_of_others_and_those_the_coordinator_was_told_of_stay(tmp_path: Path) -> None:
    world, options = World(), placed(tmp_path)
    world.take(1, options)
    world.work_beside()
    world.checkpoints.notify_aborted(1, 0)
    answered = files_below(tmp_path)
    assert len(answered) == 4
    world.on_write = lambda: world.checkpoints.close()
    world.take(2, options)
    world.work_beside()
    assert files_below(tmp_path) == answered


def test_files_that_cannot_be_deleted_are_told_and_end_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(uri: str) -> None:
        raise CheckpointStorageError("delete", uri, "the storage is down")

    monkeypatch.setattr(snapshot_files, "remove_file", refuse)
    world = World()
    world.on_write = lambda: world.checkpoints.close()
    world.take(1, placed(tmp_path))
    world.work_beside()
    assert "3 files of a failed checkpoint were not deleted" in caplog.text
    assert world.log[-1] == "discard"


def placed(folder: Path) -> CheckpointOptions:
    """A checkpoint's own folder beside the shared one, in which another has put a file."""
    own, shared = folder / "chk-1", folder / "shared"
    own.mkdir()
    shared.mkdir()
    (shared / "of another checkpoint").write_bytes(b"")
    return CheckpointOptions(exclusive_uri=str(own), shared_uri=str(shared))


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
