"""LeaderRestClient: sends REST requests to the driver that currently leads a cluster.

The leader's address is looked up at the first request, and again whenever a request cannot be delivered. A request that
may have arrived is never repeated here: the caller decides. Source: Flink RestClusterClient.
"""

import http
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.core.config import Settings
from headrace.rest.client import RETRY_DELAY, RETRY_MAX_ATTEMPTS, OnUnready, RestClient, Wait
from headrace.rest.client_errors import RestRefusedError, RestUnreachableError
from headrace.rest.home.connections import FoundConnection, find_connection

if TYPE_CHECKING:
    from headrace.cluster.high_availability.leader_retrieval_service import LeaderRetrievalService


class LeaderRestClient:
    """Sends requests as RestClient does, at most `rest.retry.max-attempts` times with pauses of `rest.retry.delay`.

    Thread-safe.
    """

    def __init__(
        self,
        retrieval: "LeaderRetrievalService",
        settings: Settings,
        notify: Callable[[str], None],
        wait: Wait | None = None,
        *,
        on_retry: Callable[[RestUnreachableError], None] = lambda _: None,
    ) -> None:
        self._on_retry: Final = on_retry
        self._retrieval: Final = retrieval
        # The leader may change between two attempts, so that each of them is one of this class.
        self._settings: Final = settings.with_values({RETRY_MAX_ATTEMPTS.key: "1"})
        self._attempts_max: Final = settings.get_option(RETRY_MAX_ATTEMPTS)
        self._retry_delay_s: Final = settings.get_option(RETRY_DELAY).total_seconds()
        self._notify: Final = notify
        self._wait: Final = wait or threading.Event().wait
        # Requests of several threads find one leader.
        self._lock: Final = threading.Lock()
        self._client: RestClient | None = None

    @property
    def address(self) -> str:
        """Look for the leader, unless it is known, and return its address; empty if no leader is known."""
        client = self._found()
        return "" if client is None else client.address

    def exchange(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        content_type: str,
        timeout_s: float | None = None,
        query: Mapping[str, object] | None = None,
        on_unready: OnUnready | None = None,
    ) -> bytes:
        """Return the leader's answer. Raises RestUnreachableError and the errors of RestClient.

        `on_unready`: as in RestClient.
        """
        attempt = 0
        while True:
            attempt += 1
            client = self._found()
            reason = "no leader of the cluster is known"
            if client is not None:
                try:
                    return client.exchange(
                        method, path, content,
                        content_type=content_type, timeout_s=timeout_s, query=query,
                        on_unready=on_unready,
                    )  # fmt: skip
                except RestUnreachableError as error:
                    self._forget(client)
                    if error.may_have_arrived:
                        raise
                    reason = str(error)
                except RestRefusedError as error:
                    if error.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                        raise
                    # It does not lead any more, or not yet again.
                    self._forget(client)
                    reason = str(error)
            unanswered = RestUnreachableError("the leader's address", reason, attempt)
            if attempt >= self._attempts_max:
                raise unanswered
            self._on_retry(unanswered)
            self._wait(self._retry_delay_s)

    def close(self) -> None:
        """Stop looking for the leader. Idempotent."""
        self._retrieval.close()

    def _found(self) -> RestClient | None:
        with self._lock:
            if self._client is None:
                found = leader_connection(self._retrieval, self._notify)
                if found is not None:
                    self._client = RestClient.of(found, settings=self._settings)
            return self._client

    def _forget(self, client: RestClient) -> None:
        with self._lock:
            if self._client is client:
                self._client = None


def leader_connection(
    retrieval: "LeaderRetrievalService", notify: Callable[[str], Any]
) -> FoundConnection | None:
    """Return the connection to the leader, or None if no leader is known. ConnectionFileError."""
    address = retrieval.leader_address()
    return find_connection(address, notify) if address else None
