"""What BATCH mode has not is refused by name, with the place in the program, before Spark starts."""

from typing import Any

import msgspec
import pytest

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.common import Duration, Types
from headrace.connectors.dataframe.messages import SINK_COMMITTER, SOURCE_COORDINATOR
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.functions.hybrid_enumerator import HYBRID_ENUMERATOR
from headrace.functions.source import EnumeratorPayload
from headrace.graph.job_graph import ArtifactKind, JobArtifact, JobGraph
from headrace.spark.batch.batch_support import (
    idle_settings,
    refuse_dataframes_of_others,
    refuse_job_files,
    refuse_unsupported,
)
from tests.unit.api.recording import recording


def graph_of(build: Any) -> JobGraph:
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        build(env)
        env.execute_async()
        return executor.last


def simple(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).key_by(lambda n: n).reduce(max).print()


def aligned(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "group", Duration.of_seconds(1), Duration.of_seconds(1)
    )
    numbers = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), count=5)
    env.from_source(numbers, strategy, "numbers").print()


def test_a_plain_program_is_not_refused() -> None:
    graph = graph_of(simple)
    refuse_unsupported(graph)
    assert len(graph.vertices) > 1


def test_an_aligned_source_is_refused_by_name() -> None:
    with pytest.raises(ProgramError, match=r"'Source: numbers'.*aligns its watermarks.*STREAMING"):
        refuse_unsupported(graph_of(aligned))


def test_a_hybrid_source_is_refused_by_name() -> None:
    graph = graph_of(simple)
    (first, *others) = graph.vertices
    payload = msgspec.msgpack.encode(EnumeratorPayload(HYBRID_ENUMERATOR, b""))
    operator = msgspec.structs.replace(
        first.operators[0], coordinator="source", coordinator_payload=payload
    )
    vertex = msgspec.structs.replace(first, operators=(operator, *first.operators[1:]))
    changed = msgspec.structs.replace(graph, vertices=(vertex, *others))
    with pytest.raises(ProgramError, match="reads one source after another"):
        refuse_unsupported(changed)


@pytest.mark.parametrize("coordinator", ["aligned", "another"])
def test_an_operator_with_a_coordinator_of_its_own_is_refused_by_name(coordinator: str) -> None:
    graph = graph_of(simple)
    (first, *others) = graph.vertices
    operator = msgspec.structs.replace(first.operators[0], coordinator=coordinator)
    vertex = msgspec.structs.replace(first, operators=(operator, *first.operators[1:]))
    changed = msgspec.structs.replace(graph, vertices=(vertex, *others))
    with pytest.raises(ProgramError, match=r"operator 'Source: .*not supported in BATCH mode"):
        refuse_unsupported(changed)


@pytest.mark.parametrize(
    "changes", [{"coordinator": SOURCE_COORDINATOR}, {"committer": SINK_COMMITTER}]
)
def test_a_dataframe_of_another_process_is_refused_by_name(changes: dict[str, str]) -> None:
    graph = graph_of(simple)
    refuse_dataframes_of_others(graph)
    (first, *others) = graph.vertices
    operator = msgspec.structs.replace(first.operators[0], **changes)
    vertex = msgspec.structs.replace(first, operators=(operator, *first.operators[1:]))
    changed = msgspec.structs.replace(graph, vertices=(vertex, *others))
    with pytest.raises(ProgramError, match=rf"'{operator.name}' is a DataFrame of another"):
        refuse_dataframes_of_others(changed)


def test_only_python_files_that_tasks_see_are_there_for_a_lazy_dataframe() -> None:
    artifact = JobArtifact(ArtifactKind.PYTHON_FILE, "rules.py", "rules.py")
    elsewhere = msgspec.structs.replace(graph_of(simple), artifacts=(artifact,))
    with pytest.raises(ProgramError, match=r"files that travel with a job \(rules\.py\)"):
        refuse_job_files(elsewhere)
    here = {**elsewhere.settings, "python.files": "rules.py"}
    refuse_job_files(msgspec.structs.replace(elsewhere, settings=here))


def test_an_interval_of_checkpoints_is_told_to_have_no_effect() -> None:
    (told,) = idle_settings(Settings({"execution.checkpointing.interval": "10 s"}))
    assert "execution.checkpointing.interval has no effect in BATCH mode" in told
    assert idle_settings(Settings()) == []
