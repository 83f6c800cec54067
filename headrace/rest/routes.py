"""The routes of the REST API: one table of method, path, handler, request and answer.

The server, the OpenAPI page, docs/generated/rest.md and the archive of ended jobs are made from it.
"""

from collections.abc import Callable
from typing import Any, Final

from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.job_master import CollectedResults, JobConfiguration, JobDetails
from headrace.gateways.messages import (
    Acknowledge,
    DataSetInfo,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan
from headrace.rest.client_protocol import OperationOutcome
from headrace.rest.handlers import (
    applications,
    checkpoints,
    cluster,
    data_sets,
    flame_graphs,
    gateway,
    jars,
    jobs,
    metrics,
    profiler,
    savepoints,
    state,
    task_managers,
    unsupported,
    vertices,
)
from headrace.rest.models import checkpoints as checkpoint_models
from headrace.rest.models import cluster as cluster_models
from headrace.rest.models import jars as jar_models
from headrace.rest.models import jobs as job_models
from headrace.rest.models import state as state_models
from headrace.rest.models import task_managers as task_manager_models
from headrace.rest.models import vertices as vertex_models
from headrace.rest.rest_route import RestRoute

METRIC_LIST: Final = list[cluster_models.MetricValue]
COMBINED_METRICS: Final = list[cluster_models.AggregatedMetric] | list[cluster_models.MetricValue]


def _message(
    path: str, handler: Callable[..., Any], answer: Any, method: str = "GET", request: Any = None
) -> RestRoute:
    """Return a route for Headrace's own clients."""
    return RestRoute(method, path, handler, answer, is_message=True, request=request)


def _get(
    path: str, handler: Callable[..., Any], answer: Any, *, is_archived: bool = False
) -> RestRoute:
    """Return a route that answers the present state, uncached."""
    return RestRoute("GET", path, handler, answer, is_archived=is_archived)


def _post(
    path: str, handler: Callable[..., Any], request: Any, answer: Any, status: int = 200
) -> RestRoute:
    """Return a route whose request has a body."""
    return RestRoute("POST", path, handler, answer, status, request=request)


def _begun(path: str, handler: Callable[..., Any], request: Any) -> RestRoute:
    """Return a route that starts an operation, whose status is requested by its trigger id later."""
    return _post(path, handler, request, cluster_models.TriggerAnswer, 202)


def _page(
    path: str, handler: Callable[..., Any], answer: Any, *, of_job: bool = False
) -> RestRoute:
    """Return a route that dashboards poll."""
    return RestRoute("GET", path, handler, answer, is_kept=True, is_archived=of_job)


def _refused(method: str, path: str, handler: Callable[..., Any], status: int) -> RestRoute:
    """Return a Flink route that always answers with an error of this status."""
    return RestRoute(method, path, handler, cluster_models.ErrorBody, status)


_JOB: Final = "/jobs/{jobid}"
_VERTEX: Final = f"{_JOB}/vertices/{{vertexid}}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_APPLICATION: Final = "/applications/{applicationid}"
_JAR: Final = "/jars/{jarid}"
_TASK_MANAGER: Final = "/taskmanagers/{taskmanagerid}"

_MESSAGES: Final[tuple[RestRoute, ...]] = (
    _message("/jobs", gateway.take_job, Acknowledge, "POST", JobGraph),
    _message("/jobs/overview", gateway.jobs_message, tuple[JobOverview, ...]),
    _message(_JOB, gateway.job_details_message, JobDetails),
    _message(f"{_JOB}/execution-result", gateway.job_result_message, JobResult),
    _message(f"{_JOB}/plan", gateway.job_plan_message, JobPlan),
    _message(f"{_JOB}/config", gateway.job_configuration_message, JobConfiguration),
    _message(f"{_JOB}/accumulators", gateway.accumulators_message, dict[str, float]),
    _message(f"{_JOB}/checkpoints", gateway.checkpoint_statistics_message, CheckpointStatistics),
    _message(
        f"{_JOB}/checkpoints/config",
        gateway.checkpoint_configuration_message,
        CheckpointConfiguration,
    ),
    _message(
        f"{_JOB}/checkpoints/details/{{checkpointid}}",
        gateway.checkpoint_details_message,
        CheckpointDetails | None,
    ),
    _message(
        f"{_JOB}/checkpoints/latest", gateway.latest_checkpoint_message, StoredCheckpoint | None
    ),
    _message(
        f"{_JOB}/checkpoints/{{triggerid}}", gateway.checkpoint_outcome_message, OperationOutcome
    ),
    _message(
        f"{_JOB}/savepoints/{{triggerid}}", gateway.savepoint_outcome_message, OperationOutcome
    ),
    _message(f"{_JOB}/operators", gateway.operators_message, tuple[OperatorDescription, ...]),
    _message(
        f"{_JOB}/operators/{{operatorid}}/collected",
        gateway.collected_results_message,
        CollectedResults,
    ),
    _message(f"{_JOB}/state", gateway.read_state, SubtaskState, "POST", StateReadRequest),
    _message("/datasets", gateway.data_sets_message, tuple[DataSetInfo, ...]),
    _message("/datasets/{datasetid}", gateway.release_message, Acknowledge, "DELETE"),
)
"""Routes for clients that use a whole DispatcherGateway over REST. Each precedes the JSON route of its path."""

# A fixed path precedes paths with parameters that would match it.
ROUTES: Final[tuple[RestRoute, ...]] = (
    *_MESSAGES,
    # The cluster
    _get("/config", cluster.configuration, cluster_models.DashboardConfiguration),
    _get("/overview", cluster.overview, cluster_models.ClusterOverview),
    RestRoute("DELETE", "/cluster", cluster.shut_down, cluster_models.Empty),
    _post("/session", cluster.sign_in, cluster_models.SessionRequest, None),
    RestRoute("DELETE", "/session", cluster.sign_out, None),
    _get("/datasets", data_sets.data_sets, cluster_models.DataSetList),
    RestRoute(
        "DELETE", "/datasets/{datasetid}", data_sets.delete_data_set, cluster_models.TriggerAnswer
    ),
    _get(
        "/datasets/delete/{triggerid}",
        data_sets.data_set_deletion_status,
        checkpoint_models.SavepointOperationResult,
    ),
    # The driver
    _get("/jobmanager/config", cluster.job_manager_config, list[cluster_models.Setting]),
    _get(
        "/jobmanager/environment",
        cluster.job_manager_environment,
        cluster_models.JobManagerEnvironment,
    ),
    _page("/jobmanager/metrics", metrics.job_manager_metrics, METRIC_LIST),
    _get("/jobmanager/logs", cluster.job_manager_logs, cluster_models.LogFileList),
    _get("/jobmanager/logs/{filename}", cluster.job_manager_log_file, None),
    _get("/jobmanager/log", cluster.job_manager_log, None),
    _get("/jobmanager/stdout", cluster.job_manager_stdout, None),
    _get("/jobmanager/thread-dump", cluster.job_manager_thread_dump, cluster_models.ThreadDump),
    _post(
        "/jobmanager/profiler",
        profiler.profile_job_manager,
        cluster_models.ProfilingRequest,
        cluster_models.Profiling,
    ),
    _get("/jobmanager/profiler", profiler.job_manager_profiles, cluster_models.ProfilingList),
    _get("/jobmanager/profiler/{filename}", profiler.job_manager_profile, None),
    # Jobs
    _get("/jobs", jobs.list_job_ids, job_models.JobIds),
    _get("/jobs/overview", jobs.jobs_overview, job_models.JobList, is_archived=True),
    _page("/jobs/metrics", metrics.metrics_of_jobs, COMBINED_METRICS),
    _page(_JOB, jobs.job_details, job_models.JobDetailsInfo, of_job=True),
    RestRoute("PATCH", _JOB, jobs.cancel_job, cluster_models.Empty, status=202),
    RestRoute("GET", f"{_JOB}/yarn-cancel", jobs.cancel_job, cluster_models.Empty, status=202),
    _get(f"{_JOB}/status", jobs.job_status, job_models.JobStatusInfo, is_archived=True),
    _get(
        f"{_JOB}/execution-result",
        jobs.job_execution_result,
        job_models.JobExecutionResultResponseBody,
        is_archived=True,
    ),
    _page(f"{_JOB}/plan", jobs.job_plan, job_models.JobPlanInfo, of_job=True),
    _page(f"{_JOB}/config", jobs.job_config, job_models.JobConfigInfo, of_job=True),
    _page(f"{_JOB}/exceptions", jobs.job_exceptions, job_models.JobExceptions, of_job=True),
    _page(f"{_JOB}/accumulators", jobs.job_accumulators, job_models.JobAccumulators, of_job=True),
    _page(f"{_JOB}/metrics", metrics.metrics_of_job, METRIC_LIST),
    _page(f"{_JOB}/watermarks", vertices.job_watermarks, vertex_models.JobWatermarks),
    _page(
        f"{_JOB}/metrics-history",
        metrics.job_metrics_history,
        vertex_models.MetricsHistoryInfo,
        of_job=True,
    ),
    _get(
        f"{_JOB}/jobmanager/config",
        cluster.job_manager_config,
        list[cluster_models.Setting],
        is_archived=True,
    ),
    _get(
        f"{_JOB}/jobmanager/environment",
        cluster.job_manager_environment,
        cluster_models.JobManagerEnvironment,
        is_archived=True,
    ),
    RestRoute(
        "PUT",
        f"{_JOB}/blobs/{{digest}}",
        gateway.put_blob_chunk,
        job_models.ReceivedBytes,
        request=bytes,
    ),
    _refused("POST", "/jobs", unsupported.submit_java_graph, 400),
    _refused("PATCH", f"{_JOB}/rescaling", unsupported.rescale, 503),
    _refused("GET", f"{_JOB}/rescaling/{{triggerid}}", unsupported.rescale, 503),
    _refused("GET", f"{_JOB}/resource-requirements", unsupported.resource_requirements, 500),
    _refused("PUT", f"{_JOB}/resource-requirements", unsupported.resource_requirements, 500),
    RestRoute(
        "PATCH",
        f"{_JOB}/clientHeartbeat",
        jobs.report_client_heartbeat,
        cluster_models.Empty,
        status=202,
        request=job_models.ClientHeartbeat,
    ),
    _get(f"{_JOB}/jobmanager/log-url", jobs.job_manager_log_url, cluster_models.LogUrl),
    _get(
        f"{_JOB}/taskmanagers/{{taskmanagerid}}/log-url",
        jobs.task_manager_log_url,
        cluster_models.LogUrl,
    ),
    *(
        _refused("GET", f"{_JOB}/rescales/{part}", unsupported.rescales, 404)
        for part in ("overview", "summary", "history", "details/{rescaleuuid}", "config")
    ),
    # Applications
    _get("/applications/overview", applications.list_applications, job_models.ApplicationList),
    _get(_APPLICATION, applications.application_details, job_models.ApplicationDetails),
    RestRoute(
        "POST",
        f"{_APPLICATION}/cancel",
        applications.cancel_application,
        cluster_models.Empty,
        status=202,
    ),
    _get(
        f"{_APPLICATION}/exceptions", applications.application_exceptions, job_models.JobExceptions
    ),
    _get(
        f"{_APPLICATION}/jobmanager/config",
        cluster.job_manager_config,
        list[cluster_models.Setting],
    ),
    # Vertices and subtasks
    _page(_VERTEX, vertices.vertex_details, vertex_models.JobVertexDetailsInfo, of_job=True),
    _page(
        f"{_VERTEX}/subtasktimes", vertices.subtask_times, vertex_models.SubtaskTimes, of_job=True
    ),
    _page(
        f"{_VERTEX}/taskmanagers",
        vertices.vertex_task_managers,
        vertex_models.VertexTaskManagers,
        of_job=True,
    ),
    _page(f"{_VERTEX}/backpressure", vertices.back_pressure, vertex_models.BackPressure),
    _page(f"{_VERTEX}/watermarks", vertices.watermarks, METRIC_LIST),
    _page(f"{_VERTEX}/metrics", metrics.metrics_of_vertex, METRIC_LIST),
    _page(f"{_VERTEX}/jm-operator-metrics", metrics.metrics_of_coordinators, METRIC_LIST),
    _page(
        f"{_VERTEX}/accumulators",
        vertices.vertex_accumulators,
        vertex_models.VertexAccumulators,
        of_job=True,
    ),
    _get(f"{_VERTEX}/flamegraph", flame_graphs.vertex_flame_graph, vertex_models.VertexFlameGraph),
    _page(f"{_VERTEX}/subtasks/metrics", metrics.metrics_of_subtasks, COMBINED_METRICS),
    _page(
        f"{_VERTEX}/subtasks/accumulators",
        vertices.subtasks_accumulators,
        vertex_models.SubtasksAccumulators,
        of_job=True,
    ),
    _page(_SUBTASK, vertices.subtask_attempt, vertex_models.Attempt, of_job=True),
    _page(f"{_SUBTASK}/metrics", metrics.metrics_of_subtask, METRIC_LIST),
    _page(
        f"{_SUBTASK}/attempts/{{attempt}}",
        vertices.numbered_attempt,
        vertex_models.Attempt,
        of_job=True,
    ),
    _page(
        f"{_SUBTASK}/attempts/{{attempt}}/accumulators",
        vertices.attempt_accumulators,
        vertex_models.AttemptAccumulators,
        of_job=True,
    ),
    # Checkpoints and savepoints
    _page(
        f"{_JOB}/checkpoints",
        checkpoints.checkpoint_statistics,
        checkpoint_models.CheckpointingStatistics,
        of_job=True,
    ),
    _page(
        f"{_JOB}/checkpoints/config",
        checkpoints.checkpoint_config,
        checkpoint_models.CheckpointConfigInfo,
        of_job=True,
    ),
    _page(
        f"{_JOB}/checkpoints/details/{{checkpointid}}",
        checkpoints.checkpoint_details,
        checkpoint_models.Checkpoint,
        of_job=True,
    ),
    _page(
        f"{_JOB}/checkpoints/details/{{checkpointid}}/subtasks/{{vertexid}}",
        checkpoints.vertex_checkpoint,
        checkpoint_models.VertexCheckpoint,
        of_job=True,
    ),
    _begun(
        f"{_JOB}/checkpoints",
        savepoints.request_checkpoint,
        checkpoint_models.CheckpointTriggerRequest,
    ),
    _get(
        f"{_JOB}/checkpoints/{{triggerid}}",
        savepoints.checkpoint_status,
        checkpoint_models.CheckpointOperationResult,
    ),
    _begun(
        f"{_JOB}/savepoints",
        savepoints.trigger_savepoint,
        checkpoint_models.SavepointTriggerRequest,
    ),
    _get(
        f"{_JOB}/savepoints/{{triggerid}}",
        savepoints.savepoint_status,
        checkpoint_models.SavepointOperationResult,
    ),
    _begun(f"{_JOB}/stop", savepoints.stop_with_savepoint, checkpoint_models.StopRequest),
    _post(
        "/savepoint-disposal",
        savepoints.delete_savepoint,
        checkpoint_models.SavepointDisposalRequest,
        cluster_models.TriggerAnswer,
    ),
    _get(
        "/savepoint-disposal/{triggerid}",
        savepoints.disposal_status,
        checkpoint_models.SavepointOperationResult,
    ),
    # State, which is read on request
    _get(f"{_JOB}/state", state.job_state, state_models.StateInfo),
    _get(
        f"{_JOB}/state/operators/{{operatorid}}", state.operator_state, state_models.OperatorState
    ),
    _get(f"{_JOB}/state/operators/{{operatorid}}/rows", state.state_rows, state_models.StateRows),
    _begun(f"{_JOB}/state/edits", state.edit_state, state_models.StateEditRequest),
    _get(
        f"{_JOB}/state/edits/{{triggerid}}",
        state.edit_status,
        state_models.StateEditOperationResult,
    ),
    # Programs
    _get("/jars", jars.list_jars, jar_models.JarList),
    _post("/jars/upload", jars.upload_jar, jar_models.JarUploadForm, jar_models.JarUploaded),
    RestRoute("DELETE", _JAR, jars.delete_jar, cluster_models.Empty),
    RestRoute(
        "GET", f"{_JAR}/plan", jars.plan_jar, jar_models.JarPlan, request=jar_models.JarPlanRequest
    ),
    _post(f"{_JAR}/plan", jars.plan_jar, jar_models.JarPlanRequest, jar_models.JarPlan),
    _post(f"{_JAR}/run", jars.run_jar, jar_models.JarRunRequest, jar_models.JarRun),
    _post(
        f"{_JAR}/run-application",
        jars.run_jar_as_application,
        jar_models.JarRunRequest,
        jar_models.JarApplication,
        202,
    ),
    # TaskManagers
    _get("/taskmanagers", task_managers.list_task_managers, task_manager_models.TaskManagerList),
    _page("/taskmanagers/metrics", metrics.metrics_of_task_managers, COMBINED_METRICS),
    _page(
        _TASK_MANAGER,
        task_managers.task_manager_details,
        task_manager_models.TaskManagerDetailsInfo,
    ),
    _page(f"{_TASK_MANAGER}/metrics", metrics.task_manager_metrics, METRIC_LIST),
    _get(f"{_TASK_MANAGER}/logs", task_managers.task_manager_logs, cluster_models.LogFileList),
    _get(f"{_TASK_MANAGER}/logs/{{filename}}", task_managers.task_manager_log_file, None),
    _get(f"{_TASK_MANAGER}/log", task_managers.task_manager_log, None),
    _get(f"{_TASK_MANAGER}/stdout", task_managers.task_manager_stdout, None),
    _get(
        f"{_TASK_MANAGER}/thread-dump",
        task_managers.task_manager_thread_dump,
        cluster_models.ThreadDump,
    ),
    _post(
        f"{_TASK_MANAGER}/profiler",
        profiler.profile_task_manager,
        cluster_models.ProfilingRequest,
        cluster_models.Profiling,
    ),
    _get(f"{_TASK_MANAGER}/profiler", profiler.task_manager_profiles, cluster_models.ProfilingList),
    _get(f"{_TASK_MANAGER}/profiler/{{filename}}", profiler.task_manager_profile, None),
)
