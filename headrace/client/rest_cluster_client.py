"""RestClusterClient: a client of a cluster in another process and of its jobs.

Source: Flink ClusterClient, RestClusterClient.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Self, TypeVar

from headrace.api.client.job_client import JobClient
from headrace.client.client_heartbeat import HEARTBEAT_INTERVAL, keep_alive, tied_to_client
from headrace.client.leader_rest_client import LeaderRestClient
from headrace.client.rest_dispatcher import RestDispatcher
from headrace.core.barriers import SavepointFormatType
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ClusterDataSetId, JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import EventLoopThread
from headrace.gateways.dispatcher import JobOverview
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph, offload
from headrace.rest.client import RETRY_DELAY, RETRY_MAX_ATTEMPTS, RestClient
from headrace.rest.client_errors import RestRefusedError, RestUnreachableError
from headrace.rest.home.connections import FoundConnection, find_connection

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_CANCEL_TIMEOUT_S: Final = 10.0
_NOTICE_INTERVAL_S: Final = 30.0
_INLINE_BYTES_MAX: Final = 1 << 18
"""Size of the payloads that stay in a job's graph, small enough for the messages of any cluster."""


class RestClusterClient:
    """A cluster, by its address or as the only one of this machine. Thread-safe; use it in `with`, or close it.

    The token is HEADRACE_TOKEN if that is set, else that of the cluster's connection file.

    Example:
        with RestClusterClient("127.0.0.1:8081") as cluster:
            client = cluster.get_job_client("4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e")
            client.stop_with_savepoint(False, "/savepoints").result()
    """

    def __init__(
        self, address: str | None = None, *, settings: Mapping[str, str] | None = None
    ) -> None:
        """`address`: `host:port` or a URL. Raises NoClusterError, SeveralClustersError or ConnectionFileError."""
        self._open(find_connection(address, _LOG.info), settings)

    @classmethod
    def of(
        cls, found: FoundConnection, settings: Mapping[str, str] | None = None
    ) -> "RestClusterClient":
        """Return a client for a connection that was found before."""
        client = cls.__new__(cls)
        client._open(found, settings)
        return client

    @classmethod
    def of_leader(cls, settings: Settings) -> "RestClusterClient":
        """Return a client of the leading driver of the cluster that the `high-availability` settings name.

        It follows changes of the leader, also while it waits for the end of a job. ConfigurationError.
        """
        from headrace.cluster.high_availability.leader_retrieval_service import (
            open_leader_retrieval,
        )

        client = cls.__new__(cls)
        notice = _RetryNotice(settings)
        retrieval = open_leader_retrieval(settings)
        client._serve(LeaderRestClient(retrieval, settings, _LOG.info, on_retry=notice.tell))
        return client

    def _open(self, found: FoundConnection, settings: Mapping[str, str] | None) -> None:
        given = Settings(settings)
        self._serve(RestClient.of(found, settings=given, on_retry=_RetryNotice(given).tell))

    def _serve(self, rest: RestClient | LeaderRestClient) -> None:
        self._rest = rest
        self._dispatcher = RestDispatcher(rest)
        self._thread = EventLoopThread("headrace-client")
        self._tied: list[JobClient] = []

    @property
    def address(self) -> str:
        """Return the address of the REST endpoint; with high availability that of the leader, which may change."""
        return self._rest.address

    def has_ended(self) -> bool:
        """Return whether the cluster's connection file shows that it has ended; False without a connection file."""
        return isinstance(self._rest, RestClient) and self._rest.has_ended()

    def submit_job(self, graph: JobGraph) -> JobClient:
        """Submit a job and return its client once the cluster has accepted it.

        The job continues without this process, unless `execution.shutdown-on-attached-exit` is set: then it ends when
        this client is closed or stops sending heartbeats.
        """
        graph = tied_to_client(graph, Settings(graph.settings))
        self._ask(self._dispatcher.submit(offload(graph, _INLINE_BYTES_MAX)))
        timeout_ms = graph.client_heartbeat_timeout_ms
        if not timeout_ms:
            return self._handle(graph.job_id)
        interval_ms = Settings(graph.settings).duration_ms(HEARTBEAT_INTERVAL)
        beating = keep_alive(graph.job_id, self._dispatcher, interval_ms, timeout_ms, SystemClock())
        asyncio.run_coroutine_threadsafe(beating, self._thread.loop)
        client = JobClient(graph.job_id, self._dispatcher, self._thread.loop)
        self._tied.append(client)
        return client

    def list_jobs(self) -> tuple[JobOverview, ...]:
        """Return running and ended jobs."""
        return self._ask(self._dispatcher.list_jobs())

    def get_job_client(self, job_id: JobId | str) -> JobClient:
        """Return the client of any job of the cluster. UnknownJobError."""
        found = _id_of(job_id)
        self._ask(self._dispatcher.request_job_status(found))
        return self._handle(found)

    def get_job_status(self, job_id: JobId | str) -> JobStatus:
        """Return the status of a job. UnknownJobError."""
        return self._ask(self._dispatcher.request_job_status(_id_of(job_id)))

    def cancel(self, job_id: JobId | str) -> None:
        """Cancel a job, without waiting for its end. UnknownJobError, JobAlreadyEndedError."""
        self._ask(self._dispatcher.cancel_job(_id_of(job_id)))

    def trigger_savepoint(
        self,
        job_id: JobId | str,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Take a savepoint while the job goes on, and return its path."""
        return self._ask(
            self._dispatcher.trigger_savepoint(_id_of(job_id), directory or "", format_type)
        )

    def stop_with_savepoint(
        self,
        job_id: JobId | str,
        advance_to_end_of_event_time: bool = False,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Take a savepoint, end the job with it, and return its path."""
        return self._ask(
            self._dispatcher.stop_with_savepoint(
                _id_of(job_id), directory or "", advance_to_end_of_event_time, format_type
            )
        )

    def trigger_checkpoint(self, job_id: JobId | str, *, is_full: bool = False) -> int:
        """Take a checkpoint, and return its id."""
        return self._ask(self._dispatcher.trigger_checkpoint(_id_of(job_id), is_full))

    def list_completed_cluster_datasets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that jobs left in the cluster, or are about to leave."""
        return self._ask(self._dispatcher.list_data_sets())

    def invalidate_cluster_dataset(self, data_set: ClusterDataSetId) -> None:
        """Delete a data set that a job left, or is going to leave."""
        self._ask(self._dispatcher.release_data_set(data_set))

    def slots_available(self) -> int:
        """Return the number of free slots of the cluster's TaskManagers."""
        return self._ask(self._dispatcher.slots_available())

    def cluster_settings(self) -> dict[str, str]:
        """Return the settings of the cluster, secrets masked."""
        return self._ask(self._dispatcher.cluster_settings())

    def shut_down_cluster(self) -> None:
        """Cancel all jobs and end the cluster."""
        self._ask(self._dispatcher.shut_down_cluster())

    def close(self) -> None:
        """Close this client, and cancel the jobs tied to it; the cluster and other jobs continue. Idempotent."""
        tied, self._tied = self._tied, []
        for client in tied:
            # Where the cluster does not hear it, it soon misses the heartbeats.
            with contextlib.suppress(HeadraceError, TimeoutError):
                client.cancel().result(_CANCEL_TIMEOUT_S)
        self._thread.stop()
        if isinstance(self._rest, LeaderRestClient):
            self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RestClusterClient({self.address!r})"

    def _handle(self, job_id: JobId) -> JobClient:
        return JobClient(job_id, self._dispatcher, self._thread.loop, outlives_program=True)

    def _ask(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(call)


class _RetryNotice:
    """Warns once about a cluster that does not answer, and again only if that lasts longer than one request."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        pause_count = settings.get_option(RETRY_MAX_ATTEMPTS) - 1
        self._patience_s: Final = pause_count * settings.get_option(RETRY_DELAY).total_seconds()
        self._clock: Final = clock or SystemClock()
        self._silent_until_ms = float("-inf")

    def tell(self, error: RestUnreachableError | RestRefusedError) -> None:
        """Log which address does not answer, and for how long requests are repeated. Called before each pause."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._silent_until_ms:
            return
        self._silent_until_ms = now_ms + 1000 * max(self._patience_s, _NOTICE_INTERVAL_S)
        _LOG.warning(
            "waiting for the cluster, at most %g s (%s, %s): %s",
            self._patience_s, RETRY_MAX_ATTEMPTS.key, RETRY_DELAY.key, error,
        )  # fmt: skip


def _id_of(job_id: JobId | str) -> JobId:
    return JobId.from_hex(job_id) if isinstance(job_id, str) else job_id
