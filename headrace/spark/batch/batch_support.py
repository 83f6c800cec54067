"""Refuses jobs that use features that BATCH mode does not support, before Spark is started."""

from typing import Final

import msgspec

from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.connectors.dataframe.messages import (
    LOG_COORDINATOR,
    SINK_COMMITTER,
    SINK_COORDINATOR,
    SOURCE_COORDINATOR,
)
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.functions.hybrid_enumerator import HYBRID_ENUMERATOR
from headrace.functions.source import SPLIT_COORDINATOR, EnumeratorPayload
from headrace.graph.job_graph import ArtifactKind, ChainedOperator, JobArtifact, JobGraph
from headrace.graph.pipeline_options import PYTHON_FILES

COLLECT_COORDINATOR: Final = "collect"
_INSTEAD: Final = "run the job in STREAMING mode, which gives the same final results"
_COORDINATORS: Final = frozenset(
    {
        *("", SPLIT_COORDINATOR, COLLECT_COORDINATOR),
        *(SOURCE_COORDINATOR, SINK_COORDINATOR, LOG_COORDINATOR),
    }
)
_NOT_THERE: Final = {"aligned": "aligns its watermarks with other sources"}


def refuse_unsupported(graph: JobGraph) -> None:
    """Raise ProgramError for the first feature in `graph` that BATCH mode does not support."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.coordinator not in _COORDINATORS:
                raise _refusal(operator, _reason(operator))
            if operator.coordinator == SPLIT_COORDINATOR and _is_hybrid(operator):
                raise _refusal(operator, "reads one source after another")
    if graph.has_cached_streams:
        raise ProgramError(f"cache() is not supported in BATCH mode: leave it out, or {_INSTEAD}")


def refuse_dataframes_of_others(graph: JobGraph) -> None:
    """Raise ProgramError if a job of another process reads or writes DataFrames.

    The driver would have to load their types, but it loads no code of other programs.
    """
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if (
                operator.coordinator in (SOURCE_COORDINATOR, SINK_COORDINATOR)
                or operator.committer == SINK_COMMITTER
            ) and operator.coordinator != LOG_COORDINATOR:
                raise ProgramError(
                    f"'{operator.name}' is a DataFrame of another process's Spark application: read and write files "
                    f"instead, or run the program with execution.target spark"
                )


def refuse_job_files(graph: JobGraph) -> None:
    """Raise ProgramError if functions of a lazy DataFrame would miss files that travel with a job."""
    missing = [each for each in graph.artifacts if not _is_seen(each, graph)]
    if missing:
        names = ", ".join(artifact.name for artifact in missing)
        raise ProgramError(
            f"files that travel with a job ({names}) do not reach the functions of a lazy DataFrame, as there is no "
            f"job that ships them: install the files on the workers, or write the stream with a sink"
        )


def _is_seen(artifact: JobArtifact, graph: JobGraph) -> bool:
    """Return whether tasks find a Python file under its own path, which the job's settings then contain."""
    is_python = artifact.kind in (ArtifactKind.PYTHON_FILE, ArtifactKind.PYTHON_FOLDER)
    return is_python and bool(Settings(graph.settings).get_option(PYTHON_FILES))


def idle_settings(settings: Settings) -> list[str]:
    """Return a sentence for each job setting that has no effect in BATCH mode."""
    if settings.duration_ms(CHECKPOINTING_INTERVAL) <= 0:
        return []
    return [
        f"{CHECKPOINTING_INTERVAL.key} has no effect in BATCH mode: Spark reruns failed tasks, and sinks commit "
        f"once, at the end of the job"
    ]


def _is_hybrid(source: ChainedOperator) -> bool:
    described = msgspec.msgpack.decode(source.coordinator_payload, type=EnumeratorPayload)
    return described.enumerator == HYBRID_ENUMERATOR


def _reason(operator: ChainedOperator) -> str:
    return _NOT_THERE.get(operator.coordinator, f"needs the coordinator '{operator.coordinator}'")


def _refusal(operator: ChainedOperator, reason: str) -> ProgramError:
    place = f" ({operator.location})" if operator.location else ""
    return ProgramError(
        f"operator '{operator.name}'{place} {reason}, which is not supported in BATCH mode: {_INSTEAD}"
    )
