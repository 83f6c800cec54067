import sys
import threading
import traceback
from typing import Any

import pandas
import pyarrow as pa
import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.executors import set_default_settings
from headrace.common import Configuration
from headrace.core.config import check_settings, unobeyed_settings
from headrace.core.errors import ConfigurationError, ProgramError, RecordTypeError
from headrace.datastream import CheckpointingMode, RuntimeExecutionMode
from headrace.datastream.connectors import Source
from tests.unit.api.recording import RecordingExecutor, plan_nodes, recording


def fresh(configuration: object = None) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_defaults_are_flinks() -> None:
    env = fresh()
    assert env.get_max_parallelism() == -1
    assert env.get_buffer_timeout() == 100
    assert env.is_chaining_enabled()
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    assert env.get_checkpoint_interval() == -1
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_default_savepoint_directory() is None
    assert not env.is_unaligned_checkpoints_enabled()


def test_setters_return_the_environment_and_take_effect() -> None:
    env = fresh()
    assert env.set_parallelism(3).set_max_parallelism(12).set_buffer_timeout(-1) is env
    assert env.disable_operator_chaining().enable_checkpointing(300000) is env
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_buffer_timeout()) == (
        3,
        12,
        -1,
    )
    assert not env.is_chaining_enabled()
    assert env.get_checkpoint_interval() == 300000
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.EXACTLY_ONCE
    assert (
        env.set_default_savepoint_directory("file:///sp").get_default_savepoint_directory()
        == "file:///sp"
    )


def test_a_configuration_is_read_in_old_and_new_spellings() -> None:
    env = fresh()
    configuration = Configuration()
    configuration.set_string("pipeline.operator-chaining", "false")
    configuration.set_string("execution.buffer-timeout", "1 min")
    configuration.set_string("execution.checkpointing.timeout", "12000")
    env.configure(configuration)
    assert not env.is_chaining_enabled()
    assert env.get_buffer_timeout() == 60000
    assert env.get_checkpoint_config().get_checkpoint_timeout() == 12000


@pytest.mark.parametrize("key", ["execution.buffer-timeout", "execution.buffer-timeout.interval"])
def test_a_configuration_with_a_value_that_cannot_be_is_refused_as_a_setter_refuses_it(
    key: str,
) -> None:
    env = fresh()
    with pytest.raises(ConfigurationError, match="'-2': it must be at least -1 ms"):
        env.configure({"pipeline.name": "other", key: "-2"})
    with pytest.raises(ValueError, match="-1, 0 or more milliseconds, not -2"):
        env.set_buffer_timeout(-2)
    with pytest.raises(ConfigurationError, match="it must be at least -1 ms"):
        fresh({key: "-5"})
    assert env.get_buffer_timeout() == 100
    env.configure({key: "-1"})
    assert env.get_buffer_timeout() == -1


def test_settings_of_flinks_python_processes_are_taken_and_said_to_have_no_effect() -> None:
    given = {
        "python.fn-execution.bundle.size": "10",
        "python.fn-execution.bundle.time": "1000",
        "python.fn-execution.arrow.batch.size": "10",
        "python.fn-execution.memory.managed": "false",
        "python.execution-mode": "thread",
        "python.state.cache-size": "0",
        "python.map-state.read-cache-size": "0",
        "python.map-state.write-cache-size": "0",
        "python.map-state.iterate-response-batch-size": "1",
        "python.logging.default.level": "DEBUG",
        "python.logging.level.overrides": "root: WARN",
        "python.client.executable": "python3",
    }
    env = fresh(given)
    env.configure(given)
    check_settings(given, ())
    told = unobeyed_settings(env.get_stream_graph().settings)
    assert [line.split("'")[1] for line in told] == list(given)
    assert all(" has no effect: " in line for line in told)


def test_setters_win_over_the_command_line_which_wins_over_configurations() -> None:
    set_default_settings({"parallelism.default": "5", "pipeline.name": "from command line"})
    try:
        env = fresh({"parallelism.default": 2, "pipeline.max-parallelism": 64})
        assert (env.get_parallelism(), env.get_max_parallelism()) == (5, 64)
        env.configure({"parallelism.default": "3"})
        assert env.get_parallelism() == 5
        assert env.set_parallelism(4).get_parallelism() == 4
    finally:
        set_default_settings({})


def test_wrong_values_are_refused() -> None:
    env = fresh()
    with pytest.raises(ValueError, match="parallelism must be at least 1"):
        env.set_parallelism(0)
    with pytest.raises(ValueError, match=r"within 1\.\.32768"):
        env.set_max_parallelism(40000)
    with pytest.raises(ValueError, match="buffer timeout"):
        env.set_buffer_timeout(-2)


def test_config_objects_are_live_views() -> None:
    env = fresh()
    env.get_config().set_auto_watermark_interval(50).set_parallelism(7)
    assert env.get_config().get_auto_watermark_interval() == 50
    assert env.get_parallelism() == 7
    env.get_checkpoint_config().set_checkpoint_interval(1000)
    assert env.get_checkpoint_interval() == 1000


def test_the_executor_decides_the_parallelism_that_nobody_set() -> None:
    with recording(parallelism=6) as executor:
        env = fresh()
        env.from_collection([1]).map(lambda n: n).print()
        assert env.get_parallelism() == 6
        env.execute_async()
        assert [vertex.parallelism for vertex in executor.last.vertices] == [1, 6]


def test_parallelism_is_taken_when_an_operator_is_made(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(lambda n: n).name("before")
    env.set_parallelism(3)
    stream.map(lambda n: n).name("after").print()
    shown = {one["type"]: one["parallelism"] for one in plan_nodes(env.get_execution_plan())}
    assert (shown["before"], shown["after"]) == (2, 3)


def test_job_names_fall_back(env: StreamExecutionEnvironment, executor: RecordingExecutor) -> None:
    names: list[str] = []
    for given, configured in (("given", ""), (None, "configured"), (None, "")):
        env.configure({"pipeline.name": configured})
        env.from_collection([1]).print()
        env.execute_async(given)
        names.append(executor.last.name)
    assert names == ["given", "configured", "Flink Streaming Job"]


def test_an_environment_can_be_used_for_another_job(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.from_collection([1]).print()
    env.execute_async()
    with pytest.raises(
        ProgramError, match=r"No operators defined in streaming topology\. Cannot execute\."
    ):
        env.execute_async()
    env.from_collection([1]).map(lambda n: n).print()
    env.execute_async()
    assert [len(graph.vertices) for graph in executor.submitted] == [2, 2]
    assert executor.submitted[0].job_id != executor.submitted[1].job_id


def test_a_program_that_could_not_be_submitted_does_not_spoil_the_next_one(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
) -> None:
    lock, stream = threading.Lock(), env.from_collection([1])
    stream.map(lambda n: (lock, n)).print()
    with pytest.raises(ProgramError, match="cannot be pickled") as failed:
        env.execute_async()
    last_line = traceback.format_exception(failed.value)[-1]
    assert "cannot be pickled" in last_line
    assert "add the sinks again" in failed.value.aftermath
    stream.map(lambda n: n + 1).print()
    env.execute_async()
    assert len(executor.last.vertices) == 2


def test_a_stream_that_could_not_be_collected_does_not_spoil_the_next_program(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    lock, stream = threading.Lock(), env.from_collection([1])
    executor.client = object()
    with pytest.raises(ProgramError, match="cannot be pickled"):
        stream.map(lambda n: (lock, n)).execute_and_collect()
    assert env.get_stream_graph().nodes == ()
    stream.execute_and_collect()
    assert len(executor.submitted) == 1


def test_an_executor_that_refuses_a_program_leaves_the_environment_empty(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(job_graph: object) -> None:
        raise ProgramError("too big")

    monkeypatch.setattr(executor, "submit", refuse)
    env.from_collection([1]).print()
    with pytest.raises(ProgramError, match="too big"):
        env.execute_async()
    assert env.get_stream_graph().nodes == ()


def test_a_plan_does_not_clear_the_operators(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.from_collection([1]).print()
    assert env.get_execution_plan() == env.get_execution_plan()
    env.execute_async()
    assert len(executor.submitted) == 1


def test_checkpointing_travels_with_the_job(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.enable_checkpointing(1000)
    env.from_collection([1]).print()
    env.execute_async()
    assert executor.last.settings["execution.checkpointing.interval"] == "1000 ms"


def test_checkpoints_are_refused_where_tasks_run_one_after_the_other(
    executor: RecordingExecutor,
) -> None:
    both = {
        "execution.checkpointing.interval": "1s",
        "execution.batch-shuffle-mode": "ALL_EXCHANGES_BLOCKING",
    }
    env = fresh(both)
    env.from_collection([1]).rebalance().print()
    with pytest.raises(
        ProgramError, match=r"execution\.batch-shuffle-mode.*checkpointing\.interval"
    ):
        env.execute_async()
    assert executor.submitted == []
    for key in both:
        env = fresh({key: both[key]})
        env.from_collection([1]).rebalance().print()
        env.execute_async()
    assert len(executor.submitted) == 2


def test_a_stream_is_no_dataframe_where_jobs_run_without_spark_of_the_program_s_own(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    numbers = env.from_collection([1], type_info=Types.LONG())
    with pytest.raises(
        ProgramError, match=r"execution.target spark.*not with the executor 'recording'"
    ):
        env.batch_dataframe_of(numbers)
    assert executor.submitted == []


def test_settings_travel_with_the_job(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.configure({"some.key": "7"})
    env.get_config().set_global_job_parameters({"region": "north", "limit": 3})
    env.from_collection([1]).print()
    env.execute_async()
    assert executor.last.settings["some.key"] == "7"
    assert executor.last.settings["pipeline.global-job-parameters.limit"] == "3"
    assert env.get_config().get_global_job_parameters() == {"region": "north", "limit": "3"}


def test_a_value_that_does_not_fit_its_type_raises_where_the_collection_is_made(
    env: StreamExecutionEnvironment,
) -> None:
    line = sys._getframe().f_lineno + 5  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(
        RecordTypeError,
        match=rf"record 'x' \(element 1 of the collection, .*\.py, line {line}\) does not fit .*Integer: expected",
    ):
        env.from_collection([1, "x"], Types.INT())


def test_what_is_no_collection_is_refused_in_words(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match=r"from_collection needs a list .* not 5 of type int"):
        env.from_collection(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("collection", "says"),
    [
        (pandas.DataFrame({"a": [1]}), r"rows of DataFrame a.* env\.from_dataframe"),
        (pa.table({"a": [1]}), r"rows of Table .* env\.from_dataframe"),
        ({"a": 1}, r"keys of \{'a': 1\} of type dict: pass list\(d\.items\(\)\)"),
    ],
)
def test_a_collection_whose_rows_python_would_not_give_is_refused(
    env: StreamExecutionEnvironment, collection: Any, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        env.from_collection(collection)


class Unspeakable:
    """Must not be put into words."""

    def __repr__(self) -> str:
        raise AssertionError("asked for its text")


def test_a_collection_is_put_into_words_for_errors_alone(env: StreamExecutionEnvironment) -> None:
    assert env.from_collection([Unspeakable()]).get_name()


@pytest.mark.parametrize("collection", [range(3), {1, 2}, (n for n in [1]), pandas.Series([1, 2])])
def test_any_other_iterable_is_a_collection(
    env: StreamExecutionEnvironment, collection: Any
) -> None:
    env.from_collection(collection).print()
    assert len(plan_nodes(env.get_execution_plan())) == 2


def test_from_source_checks_its_arguments(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="from_source needs a Source"):
        env.from_source("src", WatermarkStrategy.no_watermarks(), "name")  # type: ignore[arg-type]
    assert Source is not None


def test_from_dataframe_says_which_bridges_there_are(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match=r"does not know DataFrames of type builtins\.dict"):
        env.from_dataframe({})
