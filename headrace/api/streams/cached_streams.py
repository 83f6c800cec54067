"""CachedDataStream: a stream whose records the cluster keeps for later jobs, and the cached streams of an environment.

The first job that reaches the stream stores it on the TaskManagers that make it; later jobs of the same environment
read it there, and run no operator before it. A lost data set is computed again by the next job that needs it.
Source: Flink CachedDataStream, CacheTransformation, StreamExecutionEnvironment (FLIP-205).
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from headrace.api.executors import PipelineExecutor
from headrace.api.streams.data_stream import DataStream
from headrace.api.transformations import (
    Cache,
    CachedResult,
    OperatorTransformation,
    SideOutputTransformation,
    batch_type_of,
    is_bounded,
)
from headrace.core.errors import HeadraceError, ProgramError
from headrace.core.ids import ClusterDataSetId, JobId
from headrace.core.lifecycle import JobStatus
from headrace.functions.specs.operator_specs import CacheSpec
from headrace.gateways.errors import UnknownJobError
from headrace.graph.job_graph import JobGraph
from headrace.graph.operator_ids import operator_ids
from headrace.graph.stream_graph import ChainingStrategy, StreamGraph

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient
    from headrace.api.environment import StreamExecutionEnvironment

_LOG: Final = logging.getLogger(__name__)


class CachedDataStream(DataStream):
    """Stream whose rows are cached; made by `DataStream.cache`.

    It is stored unchanged: set name, parallelism and other properties before calling `cache`.
    """

    def __init__(
        self,
        environment: "StreamExecutionEnvironment",
        operator: OperatorTransformation,
        cached_streams: "CachedStreams",
    ) -> None:
        super().__init__(environment, operator)
        self._cached: Final = operator
        self._cached_streams: Final = cached_streams

    def invalidate(self) -> None:
        """Delete the stream's cached rows in the cluster; the next job that needs them computes them again."""
        self._cached_streams.invalidate(self._cached)

    def cache(self) -> "CachedDataStream":
        """Return this stream."""
        return self

    def get_name(self) -> str:
        return self._cached.name

    def _operator(self) -> NoReturn:
        raise ProgramError(
            "a cached stream is stored unchanged and has no side outputs: call this on the stream before cache(), or "
            "on a stream made from it"
        )


def cache_stream(stream: DataStream, cached_streams: "CachedStreams") -> CachedDataStream:
    """Make the CachedDataStream of a stream. ProgramError for a stream that cannot be stored."""
    origin = stream.transformation
    match origin:
        case OperatorTransformation():
            producer = origin
        case SideOutputTransformation():
            producer = origin.input
        case _:
            raise ProgramError(
                "cache() stores the output of one operator: call it before rebalance(), broadcast() and other "
                "partitionings, and on each stream before union()"
            )
    if not is_bounded(origin):
        raise ProgramError(
            f"cache() stores the whole stream for later jobs, but a source before '{producer.name}' has no end: "
            "use a bounded source, or write the stream to a sink from which the next job can read"
        )
    environment = stream.get_execution_environment()
    operator = environment.add_operator(
        CacheSpec(),
        (origin,),
        batch_type_of(origin),
        # Stored in front of it, so that later jobs begin here.
        chaining=ChainingStrategy.HEAD,
        parallelism_like=producer,
        cache=Cache(),
    )
    cached_streams.add(operator)
    return CachedDataStream(environment, operator, cached_streams)


class CachedStreams:
    """The cached streams of one environment. `executor` returns the executor of its jobs, and may start a cluster."""

    def __init__(self, executor: Callable[[], PipelineExecutor]) -> None:
        self._executor: Final = executor
        self._caches: dict[int, Cache] = {}
        self._makers: dict[JobId, JobClient] = {}
        """Jobs that make cached streams and whose end is not known yet."""
        self._undropped: list[ClusterDataSetId] = []

    @property
    def has_made_any(self) -> bool:
        """Return whether jobs have made cached streams, or have tried to."""
        return any(cache.made_by_jobs for cache in self._caches.values())

    def add(self, operator: OperatorTransformation) -> None:
        """Add a cached stream."""
        assert operator.cache is not None
        self._caches[operator.transformation_id] = operator.cache

    def look(self, executor: PipelineExecutor) -> None:
        """Find out which cached streams the next job can read.

        If the cluster does not answer, all are computed again.
        """
        if not self.has_made_any:
            return
        self._forget_failed_jobs()
        stored: dict[ClusterDataSetId, int] = {}
        try:
            stored = {
                info.data_set: info.partition_count
                for info in executor.list_data_sets()
                if info.is_complete
            }
        except (HeadraceError, TimeoutError) as error:
            _LOG.warning(
                "cached streams are computed again, because the cluster did not list them: %s",
                error,
            )
        for cache in self._caches.values():
            there = [data_set for data_set in cache.made_by_jobs if data_set in stored]
            cache.stored = CachedResult(there[0], stored[there[0]]) if there else None
            # Jobs that ran side by side have each made it. The one that was read once stays, as jobs may read it still.
            surplus = there[1:]
            others = [each for each in cache.made_by_jobs if each not in there]
            cache.made_by_jobs = there[:1] + others
            self._release(surplus, executor)

    def _forget_failed_jobs(self) -> None:
        """Ask for the status of jobs whose end the program was not told; forget results of failed or cancelled ones."""
        for job_id, client in list(self._makers.items()):
            try:
                status = client.get_job_status().result()
            except UnknownJobError:
                # The job ended too long ago for its status: its data sets are listed, or do not exist.
                status = JobStatus.FINISHED
            except (HeadraceError, TimeoutError) as error:
                _LOG.warning("the cluster did not report the status of job %s: %s", job_id, error)
                return
            if status in (JobStatus.FAILED, JobStatus.CANCELED):
                self.ended_without_result(job_id)
            elif status is JobStatus.FINISHED:
                del self._makers[job_id]

    def submitted(self, graph: JobGraph, program: StreamGraph, client: "JobClient") -> None:
        """Record a submitted job, which makes the cached streams that it does not read."""
        if not self._caches:
            return
        ids = operator_ids(program)
        made = {
            edge.target_operator_id: edge.data_set_id
            for edge in graph.edges
            if edge.result_type.traits.is_persistent
        }
        for number, cache in self._caches.items():
            data_set_id = made.get(ids[number]) if number in ids else None
            if data_set_id is not None:
                cache.made_by_jobs.append(ClusterDataSetId(graph.job_id, data_set_id))
                self._makers[graph.job_id] = client

    def lost(self, data_set: ClusterDataSetId, executor: PipelineExecutor) -> None:
        """Record that a job could not read a data set, so that no job reads it again."""
        for cache in self._caches.values():
            if data_set in cache.made_by_jobs:
                self._drop(cache, executor)

    def ended_without_result(self, job_id: JobId) -> None:
        """Record that a job has failed or was cancelled, so that its data sets will never be complete."""
        self._makers.pop(job_id, None)
        for cache in self._caches.values():
            cache.made_by_jobs = [each for each in cache.made_by_jobs if each.job_id != job_id]

    def invalidate(self, operator: OperatorTransformation) -> None:
        """Delete the data sets of a cached stream."""
        self._drop_if_made(self._caches[operator.transformation_id])

    def invalidate_data_set(self, data_set: ClusterDataSetId) -> None:
        """Delete the cached stream with this data set; ValueError if there is none."""
        for cache in self._caches.values():
            if data_set in cache.made_by_jobs:
                self._drop(cache, self._executor())
                return
        known = [str(each) for cache in self._caches.values() for each in cache.made_by_jobs]
        raise ValueError(
            f"{data_set} is not a cached stream of this environment; its cached streams are: "
            f"{', '.join(known) or 'none'}"
        )

    def close(self) -> None:
        """Delete all cached streams. A stream that is used afterwards is stored again, and deleted by the next call."""
        for cache in self._caches.values():
            self._drop_if_made(cache)

    def _drop_if_made(self, cache: Cache) -> None:
        """Delete data sets; the executor, which may start a cluster, is made only if there are any."""
        if cache.made_by_jobs or self._undropped:
            self._drop(cache, self._executor())

    def _drop(self, cache: Cache, executor: PipelineExecutor) -> None:
        made, cache.made_by_jobs, cache.stored = cache.made_by_jobs, [], None
        self._release(made, executor)

    def _release(self, data_sets: Sequence[ClusterDataSetId], executor: PipelineExecutor) -> None:
        """Delete data sets in the cluster. Errors are only logged; the deletion is tried again with the next one."""
        pending, self._undropped = [*self._undropped, *data_sets], []
        for data_set in pending:
            try:
                executor.release_data_set(data_set)
            except (HeadraceError, TimeoutError) as error:
                self._undropped.append(data_set)
                _LOG.warning(
                    "could not tell the cluster to delete the cached stream %s: %s", data_set, error
                )
