"""Makes the stored snapshots and answers anew: `python -m tests.integration.stored_savepoints [name ...]`.

For a later version of the format, which first gets a folder of its own as NEWEST: what an older one has written stays.
"""

import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from headrace import StreamExecutionEnvironment
from headrace.api.client.job_client import JobClient
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.retention.inspection import find_snapshots
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import JobCancelledError
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.integration.programs.job_details import await_details, every_task_runs
from tests.integration.programs.unaligned_program import TAPS
from tests.integration.stored_savepoints import overtaken, program
from tests.integration.stored_savepoints.keeping import SAVED
from tests.integration.stored_savepoints.program import CLUSTER, FIRST, HERE, Run, write_input
from tests.integration.stored_savepoints.signals import WAIT_S
from tests.integration.stored_savepoints.stored import NEWEST, SNAPSHOTS, Stored, pack, unpack
from tests.integration.stored_savepoints.windowing import SPAN_MS

_IN_THE_MIDDLE: Final = ("sequence", "generator", "files", "files in pieces", "hybrid")


def main(names: list[str]) -> None:
    for stored in NEWEST:
        if names and stored.name not in names:
            continue
        with _folder():
            _make(stored)
            stored.archive.parent.mkdir(exist_ok=True)
            pack(stored)
        lines = _answer(stored)
        answer = "".join(f"{line}\n" for line in lines)
        if stored.answer.exists() and stored.answer.read_text(encoding="utf-8") != answer:
            stored.answer.with_suffix(".other").write_text(answer, encoding="utf-8")
            raise AssertionError(f"{stored.name} gives other lines than {stored.answer} has")
        stored.answer.write_text(answer, encoding="utf-8")
        print(f"{stored.name}: {stored.archive.stat().st_size:,} bytes, {len(lines)} lines")


@contextlib.contextmanager
def _folder() -> Generator[None]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


def _answer(stored: Stored) -> list[str]:
    with _folder():
        run = Run(f"{stored.name} anew", stored.backends[0], path=unpack(stored))
        with MiniClusterExecutor(slot_count=2, settings=CLUSTER):
            return stored.run_to_end(StreamExecutionEnvironment.get_execution_environment(), run)


def _make(stored: Stored) -> None:
    settings = {**stored.settings(), "execution.checkpointing.data-inline-threshold": "2 kb"}
    run = Run(stored.name, stored.backends[0], settings=settings)
    if stored.run_to_end is overtaken.run_to_end:
        _make_overtaken(run)
    else:
        _make_all(run, stored)


def _make_all(run: Run, stored: Stored) -> None:
    write_input(Path("input"))
    clock = SystemClock()
    # The windows of processing time that the numbers come into are the same, whatever happens.
    _wait_for(lambda: clock.now_ms() % SPAN_MS < SPAN_MS // 20)
    run.due_ms = clock.now_ms() + SPAN_MS
    with MiniClusterExecutor(slot_count=2, settings=CLUSTER):
        client = program.start(StreamExecutionEnvironment.get_execution_environment(), run)
        run.gate.open_to(FIRST)
        run.read.await_count(FIRST)
        await_details(client, every_task_runs)
        if not stored.is_savepoint:
            client.trigger_checkpoint().result(WAIT_S)
        run.gate.open_to(SAVED)
        run.read.await_count(SAVED)
        if stored.is_savepoint:
            client.trigger_savepoint(SNAPSHOTS).result(WAIT_S)
        else:
            client.trigger_checkpoint().result(WAIT_S)
        assert run.fired.count == 0, "it took too long"
        run.answers.release()
        _cancel(client)
    _check_middle(_only_snapshot())


def _wait_for(is_time: Callable[[], bool]) -> None:
    while not is_time():
        threading.Event().wait(0.01)


def _cancel(client: JobClient) -> None:
    client.cancel().result(WAIT_S)
    with contextlib.suppress(JobCancelledError):
        client.get_job_execution_result().result(WAIT_S)


def _only_snapshot() -> CheckpointMetadata:
    (folder,) = find_snapshots(SNAPSHOTS)
    return load_snapshot(folder, Settings({KEY_FILE.key: f"{HERE}/key"})).metadata


def _check_middle(metadata: CheckpointMetadata) -> None:
    finished = {one.uid for one in metadata.operators if one.is_finished}
    reading = {f"source of {name}" for name in _IN_THE_MIDDLE}
    assert not reading & finished, "all was read before the snapshot: read it slower"


def _make_overtaken(run: Run) -> None:
    with MiniClusterExecutor(slot_count=2, settings=CLUSTER):
        client = overtaken.start(StreamExecutionEnvironment.get_execution_environment(), run)
        tap = TAPS[run.name]
        tap.let(20)
        await_details(client, lambda details: tap.taken >= 20 and every_task_runs(details))
        checkpoint = client.trigger_checkpoint()
        while client.get_job_details().result(WAIT_S).checkpoints.counts.completed < 1:
            # A few records at a time: nearly all of them are on their way, or not read yet.
            tap.let_if_empty(2)
        checkpoint.result(WAIT_S)
        tap.let(10 * overtaken.NUMBER_COUNT)
        _cancel(client)
    metadata = _only_snapshot()
    in_flight = [
        chunk.row_count
        for operator in metadata.operators
        for state in operator.subtasks.values()
        for chunk in state.chunks
        if chunk.table is StateTable.CHANNELS
    ]
    assert sum(in_flight) > overtaken.NUMBER_COUNT // 4, in_flight


if __name__ == "__main__":
    main(sys.argv[1:])
