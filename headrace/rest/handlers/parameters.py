"""Parameters of handlers, which FastAPI takes from the path, the query and the application."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from headrace.core.ids import JobId, JobVertexId
from headrace.core.process.process_profiler import ProcessProfiler
from headrace.rest.cluster_view import ClusterView
from headrace.rest.flame_graph_sampler import FlameGraphSampler
from headrace.rest.models.base_models import WHOLE_ID
from headrace.rest.operations import Operations
from headrace.rest.programs.program_runs import ProgramService
from headrace.rest.state.read_limit import StateReadLimit


async def _cluster_view(request: Request) -> ClusterView:
    return request.app.state.cluster


async def _operations(request: Request) -> Operations:
    return request.app.state.operations


async def _state_reads(request: Request) -> StateReadLimit:
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
"""Running savepoints and other operations that clients have requested."""
ReadsOfState = Annotated[StateReadLimit, Depends(_state_reads)]
"""Running reads of state."""
Programs = Annotated[ProgramService, Depends(_programs)]
"""Programs that clients uploaded."""
OwnProfiler = Annotated[ProcessProfiler, Depends(_profiler)]
"""The profiler of the driver's process."""
SampledGraphs = Annotated[FlameGraphSampler, Depends(_flame_graphs)]
"""Flame graphs that clients request."""
JobParameter = Annotated[JobId, Depends(_job_id)]
"""The job that the path names."""
ApplicationParameter = Annotated[JobId, Depends(_application_id)]
"""The application that the path names; its id is that of its job."""
VertexParameter = Annotated[JobVertexId, Depends(_vertex_id)]
"""The vertex that the path names."""
TriggerParameter = Annotated[str, Path(alias="triggerid", pattern=WHOLE_ID)]
"""The trigger id in the path."""
SubtaskIndex = Annotated[int, Path(alias="subtaskindex", ge=0)]
"""The index of the subtask in the path."""
AttemptNumber = Annotated[int, Path(alias="attempt", ge=0)]
"""The number of the attempt in the path."""
CheckpointId = Annotated[int, Path(alias="checkpointid", ge=0)]
"""The id of the checkpoint in the path."""
TaskManagerId = Annotated[str, Path(alias="taskmanagerid", max_length=500)]
"""The id of the TaskManager in the path."""
LogFileName = Annotated[str, Path(alias="filename", max_length=500)]
"""The name of the file in the path."""
MetricNames = Annotated[tuple[str, ...] | None, Depends(_names)]
"""Names of the requested metrics; None: the request is for the list of names."""
