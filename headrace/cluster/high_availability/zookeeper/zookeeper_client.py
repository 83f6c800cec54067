"""ZooKeeperClient: reads and writes the nodes of one cluster, and watches the session. All calls but `loss` block.

    <root>/<cluster id>/epoch              its version is the newest epoch; it has no content
    <root>/<cluster id>/leader             the sealed record of that epoch
    <root>/<cluster id>/jobgraphs/<job>    the pointer to a stored job graph

Each write is a transaction that checks the version of `epoch`, so that the servers refuse those of an earlier leader.
Reads follow a `sync`, because a server may be behind the others. Source: Flink ZooKeeperUtils, Curator.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError, HostError

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.1
_REMEDY: Final = "check that its servers run and can be reached"
EPOCH: Final = "epoch"
LEADER: Final = "leader"
JOB_GRAPHS: Final = "jobgraphs"

Operation = Callable[[Any], None]
"""Adds one step to a transaction."""
_P: Final = "high-availability.zookeeper."
_MS: Final = timedelta(milliseconds=1)

QUORUM: Final = ConfigOption(
    _P + "quorum", str, "", "Servers of ZooKeeper, as host:port separated by commas."
)
ROOT: Final = ConfigOption(
    _P + "path.root", str, "/headrace",
    "Node below which each cluster has a node named by high-availability.cluster-id. Flink's default is "
    "`/flink`, which Flink clusters may use.",
)  # fmt: skip
SESSION_TIMEOUT: Final = ConfigOption(
    _P + "client.session-timeout", timedelta, timedelta(seconds=60),
    "Time without a renewal after which a standby takes over; a leader gives up after two thirds of it. Servers accept "
    "2 to 20 times their tickTime for the session itself.",
    least=timedelta(seconds=1),
)  # fmt: skip
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ConfigOption(
    _P + "client.connection-timeout", timedelta, timedelta(seconds=15),
    "Time limit for a first connection, and for an answer of a server.",
    least=_MS,
)  # fmt: skip
RETRY_WAIT: Final = ConfigOption(
    _P + "client.retry-wait", timedelta, timedelta(seconds=5),
    "Longest pause between two attempts to reach a server, and the pause before an operation is retried.",
    least=_MS,
)  # fmt: skip
MAX_RETRY_ATTEMPTS: Final = ConfigOption(
    _P + "client.max-retry-attempts", int, 3,
    "Number of retries of an operation on pointers after a lost connection.", least=0,
)  # fmt: skip
TOLERATE_SUSPENDED: Final = ConfigOption(
    _P + "client.tolerate-suspended-connections", bool, False,
    "Whether a leader keeps leading without a connection, until two thirds of the session timeout have passed. "
    "false: it gives up at once, and its jobs continue under the next leader.",
)  # fmt: skip
ACL: Final = ConfigOption(
    _P + "client.acl", str, "open",
    "Access to the nodes. `open`: all clients that reach the servers. `creator`: clients that have authenticated as "
    "the same user, with high-availability.zookeeper.client.authorization.",
    choices=("open", "creator"),
)  # fmt: skip
AUTHORIZATION: Final = ConfigOption(
    _P + "client.authorization", str, "",
    "Authentication of this process to the servers: `digest:<user>:<password>`. Several are separated by commas.",
)  # fmt: skip


class ZooKeeperMissingError(HostError):
    """The settings ask for ZooKeeper, but its client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "'high-availability.type: zookeeper' needs kazoo in every driver and client: "
            "pip install 'headrace[zookeeper]'"
        )


class ZooKeeperClient:
    """Session with ZooKeeper; the caller closes it.

    ConfigurationError if the settings are invalid; CheckpointStorageError if no server can be reached. `loss` is the
    reason why the session cannot be relied on any more; once set it stays.
    """

    def __init__(self, settings: Settings, cluster: str) -> None:
        try:
            import kazoo.client
            import kazoo.exceptions
            import kazoo.handlers.threading
            import kazoo.retry
            import kazoo.security
        except ImportError as error:
            raise ZooKeeperMissingError from error
        quorum = settings.get_option(QUORUM)
        if not quorum:
            raise ConfigurationError(QUORUM.key, quorum, "it must list the servers: host:port,…")
        self.cluster: Final = cluster
        self.base: Final = f"/{settings.get_option(ROOT).strip('/')}/{cluster}".replace("//", "/")
        self.loss = ""
        self._place: Final = f"zookeeper://{quorum}"
        self._errors: Final = kazoo.exceptions
        self._failures: Final = (
            kazoo.exceptions.KazooException,
            kazoo.handlers.threading.KazooTimeoutError,
        )
        self._timeout_s: Final = settings.get_option(ZOOKEEPER_CONNECTION_TIMEOUT).total_seconds()
        self._tolerates_suspension: Final = settings.get_option(TOLERATE_SUSPENDED)
        pause_s = settings.get_option(RETRY_WAIT).total_seconds()
        self._retry: Final = kazoo.retry.KazooRetry(
            max_tries=settings.get_option(MAX_RETRY_ATTEMPTS), delay=pause_s, backoff=1, ignore_expire=False
        )  # fmt: skip
        is_creator = settings.get_option(ACL) == "creator"
        self._client: Final[Any] = kazoo.client.KazooClient(
            hosts=quorum,
            timeout=settings.get_option(SESSION_TIMEOUT).total_seconds(),
            default_acl=kazoo.security.CREATOR_ALL_ACL if is_creator else None,
            auth_data=_authorization(settings, is_needed=is_creator),
            # Unlimited: the lease, not the number of attempts, limits how long a leader may be cut off.
            connection_retry={
                "max_tries": -1, "delay": min(_FIRST_PAUSE_S, pause_s), "max_delay": pause_s,
            },
        )  # fmt: skip
        self._client.add_listener(self._changed)
        try:
            self._run("reach", self._place, lambda: self._client.start(timeout=self._timeout_s))
            for name in (EPOCH, LEADER, JOB_GRAPHS):
                path = self.path(name)
                self._run("create", path, lambda path=path: self._client.ensure_path(path))
        except BaseException:
            self.close()
            raise

    def path(self, *names: str) -> str:
        """Return the path of a node of this cluster."""
        return "/".join((self.base, *names))

    def epoch(self) -> int:
        """Return the newest epoch; 0 if there was no leader yet."""
        path = self.path(EPOCH)

        def read() -> int:
            self._wait(self._client.sync_async(path))
            return int(self._wait(self._client.exists_async(path)).version)

        return self._run("read", path, read)

    def read(self, *names: str) -> bytes:
        """Return the content of a node; empty if it does not exist."""
        path = self.path(*names)

        def read() -> bytes:
            try:
                return self._wait(self._client.get_async(path))[0]
            except self._errors.NoNodeError:
                return b""

        return self._run("read", path, read)

    def children(self, name: str) -> list[str]:
        """Return the names of the child nodes of a node."""
        path = self.path(name)

        def read() -> list[str]:
            self._wait(self._client.sync_async(path))
            return sorted(self._wait(self._client.get_children_async(path)))

        return self._run("list", path, read)

    def take(self, epoch: int, *names: str, content: bytes) -> bool:
        """Make `epoch` the newest one and set the content of a node; return False if another process was faster."""
        # Earlier session losses do not matter: from here on the session must hold.
        self.loss = ""
        path, node = self.path(EPOCH), self.path(*names)

        def commit() -> bool:
            steps = self._client.transaction()
            steps.set_data(path, b"", version=epoch - 1)
            steps.set_data(node, content)
            results = self._wait(steps.commit_async())
            return not any(isinstance(one, Exception) for one in results)

        return self._run("write", node, commit)

    def write(self, epoch: int, *names: str, content: bytes) -> None:
        """Set the content of an existing node as the leader of an epoch.

        LeadershipLostError if a later epoch exists.
        """
        path = self.path(*names)
        self._run(
            "write", path, lambda: self._commit(epoch, lambda steps: steps.set_data(path, content))
        )

    def put(self, epoch: int, *names: str, content: bytes) -> None:
        """Create or set a node as the leader of an epoch, with retries. LeadershipLostError if a later epoch exists."""
        path = self.path(*names)

        def put() -> None:
            if self._wait(self._client.exists_async(path)) is None:
                self._commit(epoch, lambda steps: steps.create(path, content))
            else:
                self._commit(epoch, lambda steps: steps.set_data(path, content))

        self._run("write", path, lambda: self._retry.copy()(put))

    def remove(self, epoch: int, *names: str) -> None:
        """Delete a node, if it exists, as the leader of an epoch, with retries.

        LeadershipLostError if a later epoch exists.
        """
        path = self.path(*names)

        def remove() -> None:
            if self._wait(self._client.exists_async(path)) is not None:
                self._commit(epoch, lambda steps: steps.delete(path))

        self._run("delete", path, lambda: self._retry.copy()(remove))

    def close(self) -> None:
        """Close the session. Idempotent."""
        self._client.remove_listener(self._changed)
        self._client.stop()
        self._client.close()

    def _commit(self, epoch: int, operation: Operation) -> None:
        steps = self._client.transaction()
        steps.check(self.path(EPOCH), epoch)
        operation(steps)
        check, result = self._wait(steps.commit_async())
        if isinstance(check, self._errors.BadVersionError | self._errors.NoNodeError):
            reason = f"ZooKeeper has another epoch than {epoch}, and refuses its writes"
            raise LeadershipLostError(self.cluster, reason)
        if isinstance(result, Exception):
            raise result

    def _wait(self, answer: Any) -> Any:
        return answer.get(timeout=self._timeout_s)

    def _run(self, verb: str, path: str, body: Callable[[], T]) -> T:
        try:
            return body()
        except self._errors.NoAuthError as error:
            reason = f"this process is not allowed to {verb} {path}: set {AUTHORIZATION.key}"
            raise ConfigurationError(ACL.key, "creator", reason) from error
        except self._failures as error:
            place = path if path.startswith("zookeeper:") else self._place + path
            raise CheckpointStorageError(verb, place, _text(error), _REMEDY) from error

    def _changed(self, state: str) -> None:
        """Record a change of the connection. Runs on kazoo's own thread."""
        if self.loss:
            return
        if state == "LOST":
            self.loss = "its session with ZooKeeper has expired, or was closed"
        elif state == "SUSPENDED":
            if self._tolerates_suspension:
                _LOG.warning(
                    "no connection to ZooKeeper; this process keeps leading within its lease"
                )
            else:
                self.loss = (
                    f"its connection to ZooKeeper was lost, and {TOLERATE_SUSPENDED.key} is false"
                )


def _authorization(settings: Settings, *, is_needed: bool) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in filter(None, settings.get_option(AUTHORIZATION).split(",")):
        scheme, _, credential = one.strip().partition(":")
        if not credential:
            raise ConfigurationError(AUTHORIZATION.key, "…", "it must be <scheme>:<credential>")
        found.append((scheme, credential))
    if is_needed and not found:
        raise ConfigurationError(ACL.key, "creator", f"it needs {AUTHORIZATION.key}")
    return found


def _text(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
