"""Parameters of handlers: what FastAPI takes from the path, the query and the application for them."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from headrace.core.ids import JobId, JobVertexId
from headrace.core.process.process_profiler import ProcessProfiler
from headrace.rest.cluster_view import ClusterView
from headrace.rest.flame_graph_sampler import FlameGraphSampler
from headrace.rest.models.base_models import WHOLE_ID
from headrace.rest.operations import Operations
from headrace.rest.programs.program_runs import ProgramService
from headrace.rest.state.state_reads import StateReads


async def _cluster_view(request: Request) -> ClusterView:
    return request.app.state.cluster


async def _operations(request: Request) -> Operations:
    return request.app.state.operations


async def _state_reads(request: Request) -> StateReads:
    return request.app.state.state_reads


async def _programs(request: Request) -> ProgramService:
    return request.app.state.programs


async def _profiler(request: Request) -> ProcessProfiler:
    return request.app.state.profiler


async def _flame_graphs(request: Request) -> FlameGraphSampler:
    return request.app.state.flame_graphs


async def _job_id(jobid: Annotated[str, Path(pattern=WHOLE_ID)]) -> JobId:
    return JobId.from_hex(jobid)


async def _application_id(applicationid: Annotated[str, Path(pattern=WHOLE_ID)]) -> JobId:
    return JobId.from_hex(applicationid)


async def _vertex_id(vertexid: Annotated[str, Path(pattern=WHOLE_ID)]) -> JobVertexId:
    return JobVertexId.from_hex(vertexid)


async def _names(
    get: Annotated[str | None, Query(max_length=100_000)] = None,
) -> tuple[str, ...] | None:
    return None if get is None else tuple(filter(None, get.split(",")))


ClusterParameter = Annotated[ClusterView, Depends(_cluster_view)]
"""The control plane."""
RunningOperations = Annotated[Operations, Depends(_operations)]
"""Savepoints and other things that clients asked for."""
ReadsOfState = Annotated[StateReads, Depends(_state_reads)]
"""Reads of state that go on."""
Programs = Annotated[ProgramService, Depends(_programs)]
"""Programs that clients uploaded."""
OwnProfiler = Annotated[ProcessProfiler, Depends(_profiler)]
"""The profiler of the driver's process."""
SampledGraphs = Annotated[FlameGraphSampler, Depends(_flame_graphs)]
"""Flame graphs that are looked at."""
JobParameter = Annotated[JobId, Depends(_job_id)]
"""The job of the path."""
ApplicationParameter = Annotated[JobId, Depends(_application_id)]
"""The application of the path: its job's id."""
VertexParameter = Annotated[JobVertexId, Depends(_vertex_id)]
"""The vertex of the path."""
TriggerParameter = Annotated[str, Path(alias="triggerid", pattern=WHOLE_ID)]
"""The trigger id of the path."""
SubtaskIndex = Annotated[int, Path(alias="subtaskindex", ge=0)]
"""The subtask of the path."""
AttemptNumber = Annotated[int, Path(alias="attempt", ge=0)]
"""The attempt of the path."""
CheckpointId = Annotated[int, Path(alias="checkpointid", ge=0)]
"""The checkpoint of the path."""
TaskManagerId = Annotated[str, Path(alias="taskmanagerid", max_length=500)]
"""The TaskManager of the path."""
LogFileName = Annotated[str, Path(alias="filename", max_length=500)]
"""The file of the path."""
MetricNames = Annotated[tuple[str, ...] | None, Depends(_names)]
"""Names of the metrics that are asked for; None: their names are."""
