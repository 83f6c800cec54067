"""Options of high availability through ZooKeeper. Keys and defaults are Flink's, but for the root path."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

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
