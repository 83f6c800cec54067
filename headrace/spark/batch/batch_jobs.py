"""BatchJobs: creates the JobMasters of all BATCH jobs of one Spark application, of its own program and of others.

Jobs of other processes come as graphs over REST, as those in STREAMING mode do: none of their functions are loaded
here.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from headrace.api.client.job_client import JobClient
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.core.config import Settings
from headrace.core.ids import JobId, JobMasterId
from headrace.graph.job_graph import JobGraph
from headrace.rpc.service import RpcService
from headrace.spark.batch.batch_host import BatchHost
from headrace.spark.batch.batch_job import BatchJob
from headrace.spark.batch.batch_job_master import BatchJobMaster
from headrace.spark.batch.batch_support import (
    idle_settings,
    refuse_dataframes_of_others,
    refuse_job_files,
    refuse_unsupported,
)
from headrace.spark.batch.subtask_reports import ReportReceiver

_LOG: Final = logging.getLogger(__name__)
_SUBMIT_TIMEOUT_S: Final = 60.0


class BatchJobs:
    """Creates BATCH jobs. Any thread, except `job_master`, which the Dispatcher calls on its own thread."""

    def __init__(self, host: BatchHost) -> None:
        self._host: Final = host
        self._submitted: Final[dict[JobId, JobGraph]] = {}
        self._receiver: ReportReceiver | None = None

    def submit(self, graph: JobGraph, cluster: ClusterHandle) -> JobClient:
        """Submit a job to the Dispatcher of the cluster in this process, and return its handle."""
        self._host.resources.refuse(graph)
        self._warn_of_idle(graph)
        self._submitted[graph.job_id] = graph
        try:
            # Functions stay in this object, from which Spark gets them; nothing else needs them.
            shown = _without_functions(graph)
            cluster.call(cluster.dispatcher.submit_job(shown), _SUBMIT_TIMEOUT_S)
        finally:
            self._submitted.pop(graph.job_id, None)
        return JobClient(graph.job_id, cluster.dispatcher, cluster.loop)

    def job_master(
        self,
        rpc_service: RpcService,
        job_master_id: JobMasterId,
        graph: JobGraph,
        submitted_ms: int,
        on_ended: Callable[[ArchivedJob], None],
    ) -> BatchJobMaster:
        """Return the JobMaster of a job that is being submitted.

        ProgramError if the job cannot run in BATCH mode here.
        """
        own = self._submitted.get(graph.job_id)
        if own is None:
            refuse_unsupported(graph)
            refuse_dataframes_of_others(graph)
            self._host.resources.refuse(graph)
            self._warn_of_idle(graph)
        if self._host.secrets is not None and self._receiver is None:
            self._receiver = ReportReceiver(rpc_service)
            self._receiver.start()
        return BatchJobMaster(
            rpc_service,
            job_master_id,
            graph if own is None else own,
            self._host,
            submitted_ms,
            is_of_program=own is not None,
            on_ended=on_ended,
            receiver=self._receiver,
        )

    def dataframe(self, graph: JobGraph) -> DataFrame:
        """Return the rows of a graph's one collect sink as a DataFrame of the program's session; nothing runs yet.

        ProgramError if the records have no columns, or the graph uses a feature that BATCH mode does not support.
        """
        refuse_unsupported(graph)
        refuse_job_files(graph)
        host = self._host
        host.resources.refuse(graph)
        settings = Settings(dict(host.memory))
        job = BatchJob(
            host.spark, graph, host.output_pipe, host.resources, cluster_settings=settings
        )
        return job.dataframe()

    def _warn_of_idle(self, graph: JobGraph) -> None:
        idle = self._host.resources.idle(graph)
        for sentence in [*idle_settings(Settings(graph.settings)), *([idle] if idle else [])]:
            _LOG.warning("%s", sentence)


def _without_functions(graph: JobGraph) -> JobGraph:
    """Return the graph without functions, for the Dispatcher; Spark gets them from this process."""
    replace = msgspec.structs.replace
    vertices = tuple(
        replace(
            vertex,
            operators=tuple(
                replace(operator, payload=b"", types_payload=b"") for operator in vertex.operators
            ),
        )
        for vertex in graph.vertices
    )
    edges = tuple(
        replace(edge, partitioner=replace(edge.partitioner, payload=b"")) for edge in graph.edges
    )
    return replace(graph, vertices=vertices, edges=edges, artifacts=())
