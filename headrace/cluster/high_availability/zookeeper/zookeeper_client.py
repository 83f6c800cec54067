"""ZooKeeperClient: reads and writes the nodes of one cluster, and watches the session. All calls but `loss` block.

    <root>/<cluster id>/epoch              its version is the newest epoch; it has no content
    <root>/<cluster id>/leader             the sealed record of that epoch
    <root>/<cluster id>/jobgraphs/<job>    the pointer to a stored job graph

Each write is a transaction that checks the version of `epoch`, so that the servers refuse an earlier leader's. Reads
come after a `sync`, as a server may be behind the others. Source: Flink ZooKeeperUtils, Curator.
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
_REMEDY: Final = "see whether its servers run and can be reached"
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
    "Node below which clusters have nodes of their own, named by high-availability.cluster-id. Flink's default is "
    "`/flink`, where clusters of Flink's may be.",
)  # fmt: skip
SESSION_TIMEOUT: Final = ConfigOption(
    _P + "client.session-timeout", timedelta, timedelta(seconds=60),
    "Silence after which a standby takes over; a leader gives up after two thirds of it. Servers accept 2 to 20 times "
    "their tickTime for the session itself.",
    least=timedelta(seconds=1),
)  # fmt: skip
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ConfigOption(
    _P + "client.connection-timeout", timedelta, timedelta(seconds=15),
    "Longest time in which a first connection comes about, and in which a server answers.",
    least=_MS,
)  # fmt: skip
RETRY_WAIT: Final = ConfigOption(
    _P + "client.retry-wait", timedelta, timedelta(seconds=5),
    "Longest pause between two attempts to reach a server, and the pause before an operation is tried again.",
    least=_MS,
)  # fmt: skip
MAX_RETRY_ATTEMPTS: Final = ConfigOption(
    _P + "client.max-retry-attempts", int, 3,
    "Number of times that an operation on pointers is tried again after a lost connection.", least=0,
)  # fmt: skip
TOLERATE_SUSPENDED: Final = ConfigOption(
    _P + "client.tolerate-suspended-connections", bool, False,
    "Whether a leader goes on leading while it has no connection, until two thirds of the session timeout have passed. "
    "false: it gives up at once, and its jobs go on under the next leader.",
)  # fmt: skip
ACL: Final = ConfigOption(
    _P + "client.acl", str, "open",
    "Who may read and change the nodes. `open`: anybody who reaches the servers. `creator`: who has authenticated as "
    "the same user, with high-availability.zookeeper.client.authorization.",
    choices=("open", "creator"),
)  # fmt: skip
AUTHORIZATION: Final = ConfigOption(
    _P + "client.authorization", str, "",
    "How this process authenticates to the servers: `digest:<user>:<password>`. Several are separated by commas.",
)  # fmt: skip


class ZooKeeperMissingError(HostError):
    """ZooKeeper was asked for, and its client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "'high-availability.type: zookeeper' needs kazoo in every driver and client: "
            "pip install 'headrace[zookeeper]'"
        )


class ZooKeeperClient:
    """A session with ZooKeeper. ConfigurationError, CheckpointStorageError where no server is to be had.

    `loss` is why the session cannot be relied on any more; once set it stays. The caller closes it.
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
            raise ConfigurationError(QUORUM.key, quorum, "it names the servers: host:port,…")
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
            # Without an end: the lease, not the number of attempts, says how long a leader may be cut off.
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
        """Return the newest epoch; 0: nobody has ever led."""
        path = self.path(EPOCH)

        def read() -> int:
            self._wait(self._client.sync_async(path))
            return int(self._wait(self._client.exists_async(path)).version)

        return self._run("read", path, read)

    def read(self, *names: str) -> bytes:
        """Return the content of a node; empty where there is none."""
        path = self.path(*names)

        def read() -> bytes:
            try:
                return self._wait(self._client.get_async(path))[0]
            except self._errors.NoNodeError:
                return b""

        return self._run("read", path, read)

    def children(self, name: str) -> list[str]:
        """Return the names of the nodes below one."""
        path = self.path(name)

        def read() -> list[str]:
            self._wait(self._client.sync_async(path))
            return sorted(self._wait(self._client.get_children_async(path)))

        return self._run("list", path, read)

    def take(self, epoch: int, *names: str, content: bytes) -> bool:
        """Make an epoch the newest one with the content of a node; False where another process was faster."""
        # What happened to the session before does not matter: from here on it must hold.
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
        """Set the content of a node that exists, as the leader of an epoch. LeadershipLostError."""
        path = self.path(*names)
        self._run(
            "write", path, lambda: self._commit(epoch, lambda steps: steps.set_data(path, content))
        )

    def put(self, epoch: int, *names: str, content: bytes) -> None:
        """Create or set a node, as the leader of an epoch; tried again after a lost connection. LeadershipLostError."""
        path = self.path(*names)

        def put() -> None:
            if self._wait(self._client.exists_async(path)) is None:
                self._commit(epoch, lambda steps: steps.create(path, content))
            else:
                self._commit(epoch, lambda steps: steps.set_data(path, content))

        self._run("write", path, lambda: self._retry.copy()(put))

    def remove(self, epoch: int, *names: str) -> None:
        """Delete a node if it is there, as the leader of an epoch; tried again likewise. LeadershipLostError."""
        path = self.path(*names)

        def remove() -> None:
            if self._wait(self._client.exists_async(path)) is not None:
                self._commit(epoch, lambda steps: steps.delete(path))

        self._run("delete", path, lambda: self._retry.copy()(remove))

    def close(self) -> None:
        """End the session. Idempotent."""
        self._client.remove_listener(self._changed)
        self._client.stop()
        self._client.close()

    def _commit(self, epoch: int, operation: Operation) -> None:
        steps = self._client.transaction()
        steps.check(self.path(EPOCH), epoch)
        operation(steps)
        check, result = self._wait(steps.commit_async())
        if isinstance(check, self._errors.BadVersionError | self._errors.NoNodeError):
            reason = f"ZooKeeper has another epoch than {epoch}, and refuses what it writes"
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
        """Note a change of the connection; on kazoo's own thread."""
        if self.loss:
            return
        if state == "LOST":
            self.loss = "its session with ZooKeeper has expired, or was closed"
        elif state == "SUSPENDED":
            if self._tolerates_suspension:
                _LOG.warning("no connection to ZooKeeper; this process goes on within its lease")
            else:
                self.loss = (
                    f"its connection to ZooKeeper broke, and {TOLERATE_SUSPENDED.key} is off"
                )


def _authorization(settings: Settings, *, is_needed: bool) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in filter(None, settings.get_option(AUTHORIZATION).split(",")):
        scheme, _, credential = one.strip().partition(":")
        if not credential:
            raise ConfigurationError(AUTHORIZATION.key, "…", "it is <scheme>:<credential>")
        found.append((scheme, credential))
    if is_needed and not found:
        raise ConfigurationError(ACL.key, "creator", f"it needs {AUTHORIZATION.key}")
    return found


def _text(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
