"""Cached streams: what is stored by one job's graph and read by the next one's, and what is refused."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Types
from headrace.core.errors import CachedStreamLostError, HostError, JobExecutionError, ProgramError
from headrace.core.ids import ClusterDataSetId, JobId
from headrace.core.lifecycle import JobStatus
from headrace.datastream.data_stream import CachedDataStream, DataStream
from headrace.functions.process import ProcessFunction
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph, PartitionerKind, VertexKind
from tests.unit.api.recording import RecordingExecutor, recording
from tests.unit.api.streams.cached_stream_programs import KEPT, Raising, doubled, kept_by, numbers


@pytest.fixture
def executor() -> Iterator[RecordingExecutor]:
    with recording(parallelism=3) as one:
        one.client = SimpleNamespace(
            has_told_end=False,
            outlives_program=False,
            get_job_execution_result=lambda: SimpleNamespace(result=dict),
            get_job_status=lambda: SimpleNamespace(result=lambda: JobStatus.FINISHED),
        )
        yield one


@pytest.fixture
def env(executor: RecordingExecutor) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def endless(env: StreamExecutionEnvironment) -> DataStream:
    return env.socket_text_stream("localhost", 1)


def names(graph: JobGraph) -> list[list[str]]:
    return [[operator.name for operator in vertex.operators] for vertex in graph.vertices]


def make(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, count: int = 3
) -> tuple[CachedDataStream, ClusterDataSetId]:
    """A stream that a job has stored, in `count` partitions."""
    cached = doubled(env).cache()
    env.execute()
    data_set = kept_by(executor.last)
    executor.data_sets.append(DataSetInfo(data_set, count, count))
    return cached, data_set


def made_twice(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> tuple[CachedDataStream, ClusterDataSetId, ClusterDataSetId]:
    """A stream that two jobs make side by side, and what each of them leaves."""
    cached = doubled(env).cache()
    env.execute_async()
    cached.print()
    env.execute_async()
    first, second = (kept_by(graph) for graph in executor.submitted)
    return cached, first, second


def test_the_first_job_stores_what_goes_into_the_cache_one_subpartition_for_each_subtask(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.set_parallelism(2)
    doubled(env).set_parallelism(3).cache().map(str).print()
    env.execute()
    (stored,) = (edge for edge in executor.last.edges if edge.result_type is KEPT)
    assert stored.partitioner.kind is PartitionerKind.FORWARD and stored.buffer_timeout_ms == -1
    assert executor.last.vertex(stored.target_vertex_id).parallelism == 3
    assert executor.last.has_cached_streams


def test_a_stream_is_stored_though_nobody_reads_it_yet(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    make(env, executor)
    assert names(executor.last) == [["Source: numbers", "doubled"], ["Cache"]]


def test_the_next_job_reads_it_and_has_none_of_what_made_it(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, data_set = make(env, executor, count=5)
    cached.map(str).print()
    env.execute()
    (vertex,) = (each for each in executor.last.vertices if each.cached_input is not None)
    assert vertex.cached_input == data_set and vertex.kind is VertexKind.ONE_INPUT
    assert vertex.parallelism == 5, (
        "as many as there are partitions, whatever the default is by now"
    )
    assert names(executor.last) == [["Source: Cache"], ["Map", "Sink: Print to Std. Out"]]
    assert executor.last.has_cached_streams
    assert f"cached data set {data_set}" in str(executor.last)
    assert not [edge for edge in executor.last.edges if edge.result_type is KEPT]


def test_a_plan_says_what_is_stored_and_what_is_read(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached = doubled(env).cache()
    assert "stored for later jobs too" in env.explain()
    env.execute()
    data_set = kept_by(executor.last)
    executor.data_sets.append(DataSetInfo(data_set, 3, 3))
    cached.print()
    env.execute()
    cached.print()
    assert f"reads the cached data set {data_set}" in env.explain()


@pytest.mark.parametrize("stored_count", [0, 2])
def test_what_is_not_there_as_a_whole_is_made_anew(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, stored_count: int
) -> None:
    cached, data_set = make(env, executor)
    executor.data_sets = [DataSetInfo(data_set, 3, stored_count)] if stored_count else []
    cached.print()
    env.execute()
    assert kept_by(executor.last) != data_set


def test_a_cluster_that_does_not_tell_has_nothing(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached, data_set = make(env, executor)

    def silent() -> tuple[DataSetInfo, ...]:
        raise TimeoutError

    monkeypatch.setattr(executor, "list_data_sets", silent)
    cached.print()
    env.execute()
    assert kept_by(executor.last) != data_set


def test_of_two_jobs_that_ran_side_by_side_the_one_result_is_read_and_the_other_dropped(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, first, second = made_twice(env, executor)
    executor.data_sets = [DataSetInfo(each, 3, 3) for each in (second, first)]
    cached.print()
    env.execute_async()
    assert executor.last.vertices[0].cached_input == first and executor.released == [second]


def test_what_jobs_read_stays_though_an_older_job_has_made_it_too_meanwhile(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, slow, quick = made_twice(env, executor)
    executor.data_sets = [DataSetInfo(quick, 3, 3)]
    cached.print()
    env.execute_async()
    assert executor.last.vertices[0].cached_input == quick
    with monkeypatch.context() as patched:
        patched.setattr(executor, "list_data_sets", Raising(TimeoutError()).result)
        cached.print()
        env.execute_async()
    executor.data_sets = [DataSetInfo(each, 3, 3) for each in (slow, quick)]
    cached.print()
    env.execute_async()
    assert executor.last.vertices[0].cached_input == quick and executor.released == [slow]


def test_a_stream_that_is_used_after_closing_is_stored_anew_and_dropped_by_closing_again(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, first = make(env, executor)
    env.close()
    cached.invalidate()
    cached.print()
    env.execute()
    second = kept_by(executor.last)
    assert second != first and executor.released == [first]
    env.close()
    assert executor.released == [first, second]


def test_forward_from_a_stored_stream_says_why_its_parallelism_is_another(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, _ = make(env, executor, count=2)
    cached.forward().map(str).print()
    with pytest.raises(ProgramError, match="parallelism 2, in which an earlier job has stored it"):
        env.execute()


def test_invalidating_drops_what_is_kept_and_the_next_job_makes_it_anew(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, data_set = make(env, executor)
    assert env.list_completed_cluster_datasets() == {data_set}
    cached.invalidate()
    assert executor.released == [data_set] and env.list_completed_cluster_datasets() == set()
    cached.invalidate()
    assert executor.released == [data_set], "nothing was kept any more"
    cached.print()
    env.execute()
    assert kept_by(executor.last) != data_set


def test_a_data_set_is_invalidated_by_its_id_but_not_one_of_somebody_else(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    _, data_set = make(env, executor)
    other = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ValueError, match="is not a cached stream of this environment"):
        other.invalidate_cluster_dataset(data_set)
    assert executor.released == []
    env.invalidate_cluster_dataset(data_set)
    assert executor.released == [data_set]


def test_closing_the_environment_drops_all_that_it_keeps(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    kept = [make(env, executor)[1] for _ in range(2)]
    env.close()
    assert executor.released == kept
    env.close()
    assert executor.released == kept


def test_an_environment_without_cached_streams_asks_no_cluster(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> tuple[DataSetInfo, ...]:
        raise AssertionError("asked")

    monkeypatch.setattr(executor, "list_data_sets", asked)
    doubled(env).cache()
    env.execute()
    env.close()
    assert executor.released == [kept_by(executor.last)]


class FailingOnce:
    """A client whose first `count` results are the loss of what its job reads."""

    outlives_program = False

    def __init__(self, executor: RecordingExecutor, count: int) -> None:
        self._executor, self._count = executor, count

    def get_job_execution_result(self) -> Any:
        return SimpleNamespace(result=self._result)

    def _result(self) -> str:
        if not self._count:
            return "finished"
        self._count -= 1
        graph = self._executor.last
        (lost,) = (each.cached_input for each in graph.vertices if each.cached_input)
        raise CachedStreamLostError(str(graph.job_id), graph.name, "it is gone", lost)

    def get_job_id(self) -> JobId:
        return self._executor.last.job_id


def test_a_job_that_cannot_read_a_cached_stream_runs_again_with_what_makes_it(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, data_set = make(env, executor)
    cached.print()
    executor.client = FailingOnce(executor, 1)
    assert env.execute() == "finished"
    reading, making = executor.submitted[1:]
    assert reading.vertices[0].cached_input == data_set
    assert names(making)[0] == ["Source: numbers", "doubled"] and kept_by(making) != data_set
    assert executor.released == [data_set]
    assert len(env.get_stream_graph().nodes) == 0, "it removed the sinks"


def test_only_the_stream_that_was_lost_is_made_anew(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    make(env, executor)
    cached, data_set = make(env, executor)
    cached.print()
    executor.client = FailingOnce(executor, 1)
    env.execute()
    assert executor.released == [data_set]


def test_a_job_that_is_lost_again_is_not_run_a_third_time(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    cached, data_set = make(env, executor)
    cached.print()
    lost = CachedStreamLostError("id", "job", "it is gone", data_set)
    executor.client = failing(executor, lost)
    with pytest.raises(CachedStreamLostError, match="run the job again, which also computes the"):
        env.execute()
    assert len(executor.submitted) == 3


def test_what_a_job_that_failed_was_to_make_is_forgotten(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    _, data_set = make(env, executor)
    doubled(env).cache()
    executor.client = failing(executor, JobExecutionError("id", "job", "ValueError: bad"))
    with pytest.raises(JobExecutionError, match="ValueError"):
        env.execute()
    env.close()
    assert executor.released == [data_set]


class Refusing:
    """In place of `release_data_set`: notes what it is told, and raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.told: list[ClusterDataSetId] = []

    def __call__(self, data_set: ClusterDataSetId) -> None:
        self.told.append(data_set)
        raise self._error


@pytest.fixture(params=[TimeoutError(), HostError("the cluster is gone")])
def refusing(
    request: pytest.FixtureRequest, executor: RecordingExecutor, monkeypatch: pytest.MonkeyPatch
) -> Refusing:
    one = Refusing(request.param)
    monkeypatch.setattr(executor, "release_data_set", one)
    return one


def test_a_job_runs_though_the_cluster_does_not_drop_what_was_made_twice(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, refusing: Refusing
) -> None:
    cached, first, second = made_twice(env, executor)
    executor.data_sets = [DataSetInfo(each, 3, 3) for each in (first, second)]
    cached.print()
    env.execute()
    assert executor.last.vertices[0].cached_input == first and refusing.told == [second]


def test_closing_goes_on_behind_what_the_cluster_does_not_drop(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    refusing: Refusing,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = doubled(env).cache()
    env.execute_async()
    cached.print()
    env.execute_async()
    doubled(env).cache()
    env.execute_async()
    kept = [kept_by(graph) for graph in executor.submitted]
    env.close()
    assert [*dict.fromkeys(refusing.told)] == kept
    assert all(
        f"could not tell the cluster to delete the cached stream {each}" in caplog.text
        for each in kept
    )
    monkeypatch.undo()
    env.close()
    assert executor.released == kept


def failing(executor: RecordingExecutor, error: Exception) -> Any:
    """A client whose job ends with this error."""
    return SimpleNamespace(
        outlives_program=False,
        get_job_execution_result=lambda: Raising(error),
        get_job_id=lambda: executor.last.job_id,
    )


class Splitting(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_side_outputs_and_the_values_of_keyed_streams_are_cached_too(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    tag = OutputTag("odd", Types.LONG())
    side = numbers(env).process(Splitting(), Types.LONG()).get_side_output(tag).cache()
    keyed = numbers(env).key_by(lambda n: n % 2).cache()
    assert side.get_type() == Types.LONG() and keyed.get_type() == Types.LONG()
    env.execute()
    kept = [edge for edge in executor.last.edges if edge.result_type is KEPT]
    assert sorted(edge.side_output_tag or "" for edge in kept) == ["", "odd"]


def test_what_no_single_operator_gives_is_refused(env: StreamExecutionEnvironment) -> None:
    for stream in (numbers(env).rebalance(), numbers(env).union(numbers(env))):
        with pytest.raises(ProgramError, match="stores the output of one operator: call it before"):
            stream.cache()


def test_a_stream_without_end_is_refused_and_so_is_one_beside_it(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(ProgramError, match="'Map' has no end: use a bounded source, or write"):
        endless(env).map(str).cache()
    doubled(env).cache()
    endless(env).print()
    with pytest.raises(ProgramError, match="in the same job has no end: cache it in a job with"):
        env.execute()


@pytest.mark.parametrize("is_stored", [False, True])
def test_checkpoints_are_refused_with_the_way_out(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, is_stored: bool
) -> None:
    cached = make(env, executor)[0] if is_stored else doubled(env).cache()
    env.enable_checkpointing(1000)
    cached.print()
    with pytest.raises(ProgramError, match=r"unset execution\.checkpointing\.interval for it"):
        env.execute()


def test_nothing_of_a_cached_stream_can_be_set(env: StreamExecutionEnvironment) -> None:
    cached = doubled(env).cache()
    assert cached.get_name() == "Cache" and cached.cache() is cached
    for change in (
        lambda: cached.name("x"),
        lambda: cached.uid("x"),
        lambda: cached.set_parallelism(2),
        lambda: cached.disable_chaining(),
        lambda: cached.get_side_output(OutputTag("x", Types.LONG())),
    ):
        with pytest.raises(ProgramError, match=r"stored unchanged.*call this on the stream before"):
            change()
