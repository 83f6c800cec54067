"""SinkCommits: ids in order, again after an error with the same key, and nothing is given up in silence."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from headrace.checkpoint.options import REPEAT_OUTPUT
from headrace.cluster.job_master.checkpointing.commits.sink_commits import (
    COMMIT_RETRIES,
    CommitFailedError,
    CommitFunctionFailedError,
    CommitRefusedError,
    OutputAheadError,
    SinkCommits,
)
from headrace.core.clock import Cancellable, ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, ErrorDomain, NotInstalledError, wrap_user_error
from headrace.functions.sink import Committer, CommitterContext
from headrace.rpc.endpoint import RpcEndpoint
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import job_graph, vertex
from tests.unit.cluster.job_master.checkpointing.commits.committing_metadata import (
    SINK,
    metadata,
    sent_keys,
)

T = TypeVar("T")


class ScriptedCommitter:
    """Raises the scripted errors, one per call, and notes what it was asked for."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self.calls: list[tuple[str, int, list[bytes]]] = []
        self.is_closed = False

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        self.calls.append((key, checkpoint_id, list(committables)))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def close(self) -> None:
        self.is_closed = True


class KnowingCommitter(ScriptedCommitter):
    """Its target says that it was given this checkpoint last; `silences`: errors that come instead, one per call."""

    def __init__(self, last_id: int | None) -> None:
        super().__init__()
        self.last_id = last_id
        self.silences: list[Exception] = []
        self.scopes: list[str] = []

    def last_committed(self, scope: str) -> int | None:
        self.scopes.append(scope)
        if self.silences:
            raise self.silences.pop(0)
        return self.last_id


class LoopEndpoint(RpcEndpoint):
    """Runs everything on a virtual loop, without an RPC service."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_ms / 1000, action)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return self._loop.create_task(coroutine, name=name)


class World:
    """A sink's commits on a virtual loop; blocking calls take 10 ms."""

    def __init__(
        self,
        retries: int = 2,
        names: Sequence[str] = ("scripted",),
        committer: ScriptedCommitter | None = None,
        may_repeat: bool = False,
    ) -> None:
        self.loop = VirtualLoop(ManualClock())
        self.committer = committer or ScriptedCommitter()
        self.failures: list[CommitFailedError] = []
        self.told: list[str] = []
        self.changes: list[tuple[int, ...]] = []

        def create(context: CommitterContext, payload: bytes) -> Committer:
            assert (context.operator_name, payload) == ("operator 1", b"target")
            return self.committer

        sample = vertex(1, 2)
        operator = msgspec.structs.replace(
            sample.operators[0], operator_id=SINK, committer="scripted", committer_payload=b"target"
        )
        graph = job_graph((msgspec.structs.replace(sample, operators=(operator,)),))
        self.commits = SinkCommits(
            LoopEndpoint(self.loop),
            graph,
            Settings({COMMIT_RETRIES.key: str(retries), REPEAT_OUTPUT.key: str(may_repeat)}),
            self._run_blocking,
            on_changed=lambda: self.changes.append(self.commits.undecided_ids),
            on_failed=self.failures.append,
            tell=self.told.append,
            factories=dict.fromkeys(names, create),
        )

    async def _run_blocking(self, name: str, body: Callable[[], T]) -> T:
        await asyncio.sleep(0.01)
        return body()

    def publish(self, checkpoint_id: int, *numbers: int) -> None:
        acknowledged = metadata(checkpoint_id, list(numbers))
        completed = self.commits.complete(acknowledged)
        self.commits.published(completed, sent_keys(acknowledged))

    def await_all(self) -> None:
        self.loop.run_until(self.commits.await_all())

    @property
    def committed(self) -> list[tuple[int, list[bytes]]]:
        return [(checkpoint_id, contents) for _, checkpoint_id, contents in self.committer.calls]


def test_output_is_committed_in_order_of_checkpoints_under_keys_that_never_change() -> None:
    world = World()
    world.publish(1, 1)
    world.publish(3, 2, 3)
    assert world.commits.undecided_ids == (1, 3)
    world.await_all()
    assert world.committer.calls == [
        (f"lineage/{SINK}/1", 1, [b"1"]),
        (f"lineage/{SINK}/3", 3, [b"2", b"3"]),
    ]
    assert world.changes[-1] == ()


def test_an_outcome_that_is_not_known_is_settled_by_the_same_call() -> None:
    world = World()
    world.committer.errors = [TimeoutError("no answer"), None]
    world.publish(1, 1)
    world.publish(2, 2)
    world.await_all()
    assert world.committed == [(1, [b"1"]), (1, [b"1"]), (2, [b"2"])]
    assert world.failures == []


def test_after_all_tries_the_job_fails_and_nothing_later_is_committed_before_it() -> None:
    world = World(retries=2)
    world.committer.errors = [OSError("down")] * 3
    world.publish(1, 1)
    world.publish(2, 2)
    with pytest.raises(CommitFailedError, match="checkpoint 1 could not be committed by sink"):
        world.await_all()
    assert world.committed == [(1, [b"1"])] * 3
    assert len(world.failures) == 1 and world.failures[0].recoverable


def test_an_error_that_trying_again_does_not_mend_fails_at_once() -> None:
    world = World(retries=5)
    world.committer.errors = [ConfigurationError("target", "", "no such table")]
    world.publish(1, 1)
    with pytest.raises(CommitRefusedError):
        world.await_all()
    assert len(world.committer.calls) == 1 and not world.failures[0].recoverable


def test_a_mistake_in_a_user_s_function_fails_at_once_and_stands_first() -> None:
    world = World()
    world.committer.errors = [wrap_user_error(ValueError("no"), "table", "program.py, line 7")]
    world.publish(2, 1)
    with pytest.raises(
        CommitFunctionFailedError,
        match=r"^ValueError: no \(in operator 'table', .*\), with the rows of checkpoint 2",
    ) as caught:
        world.await_all()
    assert caught.value.domain is ErrorDomain.USER and caught.value.recoverable
    assert len(world.committer.calls) == 1


def test_a_user_s_function_that_meets_an_outage_is_called_again() -> None:
    world = World()
    world.committer.errors = [wrap_user_error(ConnectionError("down"), "table")]
    world.publish(2, 1)
    world.await_all()
    assert len(world.committer.calls) == 2


def test_a_job_that_restarts_commits_what_was_left_open_before_anything_else() -> None:
    world = World(retries=0)
    world.committer.errors = [OSError("down")]
    world.publish(1, 1)
    with pytest.raises(CommitFailedError):
        world.await_all()
    world.loop.run_until(world.commits.resume())
    assert world.committed == [(1, [b"1"]), (1, [b"1"])]
    assert world.commits.undecided_ids == ()


def test_another_job_master_commits_again_what_the_checkpoint_holds() -> None:
    world = World()
    world.loop.run_until(world.commits.restore(metadata(7, [1, 2])))
    assert world.committer.calls == [(f"lineage/{SINK}/7", 7, [b"1", b"2"])]


def test_a_start_from_before_what_a_sink_has_committed_is_refused_before_anything_is_done() -> None:
    committer = KnowingCommitter(last_id=9)
    world = World(committer=committer)
    with pytest.raises(OutputAheadError, match=r"checkpoint 9.*start from checkpoint 7") as refused:
        world.loop.run_until(world.commits.restore(metadata(7, [1])))
    assert (refused.value.committed_id, refused.value.recoverable) == (9, False)
    assert REPEAT_OUTPUT.key in str(refused.value)
    assert (committer.scopes, committer.calls) == ([f"lineage/{SINK}"], [])


def test_a_start_that_would_write_output_twice_is_made_and_told_where_that_is_asked_for() -> None:
    world = World(committer=KnowingCommitter(last_id=9), may_repeat=True)
    world.loop.run_until(world.commits.restore(metadata(7, [1])))
    assert world.committed == [(7, [b"1"])]
    (told,) = world.told
    assert "checkpoint 9" in told and "written a second time" in told


@pytest.mark.parametrize("last_id", [None, 6, 7])
def test_a_start_from_what_a_sink_was_given_last_is_not_refused(last_id: int | None) -> None:
    world = World(committer=KnowingCommitter(last_id))
    world.loop.run_until(world.commits.restore(metadata(7, [1])))
    assert world.committed == [(7, [b"1"])]


def test_a_start_without_state_asks_no_sink_what_it_was_given() -> None:
    committer = KnowingCommitter(last_id=9)
    world = World(committer=committer)
    world.loop.run_until(world.commits.restore(None))
    assert committer.scopes == []


def test_a_sink_that_does_not_say_what_it_was_given_is_asked_again_and_then_fails_the_job() -> None:
    committer = KnowingCommitter(last_id=9)
    committer.silences = [OSError("down")]
    world = World(committer=committer)
    with pytest.raises(OutputAheadError):
        world.loop.run_until(world.commits.restore(metadata(7, [1])))
    assert len(committer.scopes) == 2
    (told,) = world.told
    assert (
        "did not report its last commit" in told
        and "OSError: down" in told
        and "retrying in" in told
    )
    committer.silences = [OSError("down")] * 3
    with pytest.raises(CommitFailedError, match="down"):
        world = World(committer=committer)
        world.loop.run_until(world.commits.restore(metadata(7, [1])))
    assert committer.calls == []


def test_what_a_task_that_runs_on_sends_again_after_others_restarted_is_not_committed_twice() -> (
    None
):
    world = World()
    world.publish(1, 1)
    world.publish(2, 1, 2)
    world.await_all()
    world.loop.run_until(world.commits.resume())
    world.publish(3, 1, 2, 3)
    world.await_all()
    assert world.committed == [(1, [b"1"]), (2, [b"2"]), (3, [b"3"])]


def test_with_three_checkpoints_uncommitted_no_further_one_is_to_be_taken() -> None:
    world = World()
    world.publish(1, 1)
    world.publish(2, 2)
    assert not world.commits.is_backlog_full
    world.publish(3, 3)
    assert world.commits.is_backlog_full and world.commits.blocking_sinks == ("operator 1",)
    world.await_all()
    assert not world.commits.is_backlog_full


def test_closing_waits_for_the_commit_that_runs_and_begins_no_other() -> None:
    world = World()
    world.publish(1, 1)
    world.publish(2, 2)
    world.loop.run_until(world.commits.close())
    assert world.committed == [(1, [b"1"])] and world.committer.is_closed


def test_a_sink_whose_committer_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(NotInstalledError, match="'operator 1' needs the committer 'scripted'"):
        World(names=())
