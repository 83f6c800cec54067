"""Options of the remote shuffle service, of both its sides, and the host name under which clusters reach the service.

Source: Flink's `taskmanager.host` and `taskmanager.bind-host` for the host name.
"""

import ipaddress
import socket
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import is_loopback

ADDRESS: Final = ConfigOption(
    "shuffle-service.address", str, "",
    "Host and port at which a cluster calls its remote shuffle service, as `headrace shuffle-service` prints them.",
)  # fmt: skip
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "shuffle-service.heartbeat.interval", timedelta, timedelta(seconds=10),
    "Time between two messages by which a JobManager tells a remote shuffle service that its jobs are running.",
    least=timedelta(milliseconds=1),
)  # fmt: skip
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "shuffle-service.heartbeat.timeout", timedelta, timedelta(seconds=50),
    "Time without an answer after which a remote shuffle service counts as lost, with the results that it keeps.",
    least=timedelta(milliseconds=1),
)  # fmt: skip
HOST: Final = ConfigOption(
    "shuffle-service.host", str, "",
    "Name or address under which clusters reach a shuffle service. Unset: the address at which the service listens, "
    "or its machine's name if it listens at all addresses.",
)  # fmt: skip
RPC_PORT: Final = ConfigOption(
    "shuffle-service.rpc.port", str, "0",
    "Port for the calls of JobManagers to a shuffle service: a port, a range or a list, 0 for any.",
)  # fmt: skip
DIRECTORY: Final = ConfigOption(
    "shuffle-service.directory", str, "",
    "Directory in which a shuffle service keeps results; a service that restarts there finds the committed ones.",
)  # fmt: skip
LEASE: Final = ConfigOption(
    "shuffle-service.lease", timedelta, timedelta(minutes=10),
    "Time without a message about a job after which a shuffle service deletes the results of the job.",
    least=timedelta(seconds=1),
)  # fmt: skip
DISK_MAX: Final = ConfigOption(
    "shuffle-service.disk.max", SizeBytes, SizeBytes(1 << 40),
    "Bytes of results that a shuffle service keeps at most; further results are refused.",
)  # fmt: skip
WRITE_MEMORY: Final = ConfigOption(
    "shuffle-service.memory.write", SizeBytes, SizeBytes(256 << 20),
    "Memory that a shuffle service shares among the results that are being pushed. If little is left, a result still "
    "gets a quarter of `shuffle-service.memory.write-per-partition`, so that no producer waits.",
)  # fmt: skip
PARTITION_WRITE_MEMORY: Final = ConfigOption(
    "shuffle-service.memory.write-per-partition", SizeBytes, SizeBytes(8 << 20),
    "The most memory in which a shuffle service collects one result before it is written, sorted by consumer. A "
    "batch, and so a record, may take a quarter of it.",
)  # fmt: skip
READ_MEMORY: Final = ConfigOption(
    "shuffle-service.memory.read", SizeBytes, SizeBytes(256 << 20),
    "Memory of a shuffle service for batches that are read ahead of their consumers.",
)  # fmt: skip
PUSH_CREDIT: Final = ConfigOption(
    "shuffle-service.push-credit", int, 4,
    "Batches that a producer may push to a shuffle service before the first of them is stored.",
    least=1,
)  # fmt: skip
ADMISSION_TIMEOUT: Final = ConfigOption(
    "shuffle-service.admission-timeout", timedelta, timedelta(minutes=5),
    "Time for which a producer waits for permission to push to a shuffle service; then it fails.",
)  # fmt: skip
PUSH_TIMEOUT: Final = ConfigOption(
    "shuffle-service.push-timeout", timedelta, timedelta(minutes=10),
    "Time for which a producer waits for a shuffle service to store a batch, or to complete its result; then it "
    "fails.",
)  # fmt: skip
CONNECTIONS_MAX: Final = ConfigOption(
    "shuffle-service.connections.max", int, 10_000,
    "Connections that a shuffle service holds at most; further ones are refused.",
    least=1,
)  # fmt: skip


def advertised_host(settings: Settings, bind_host: str) -> str:
    """Return the configured host, else `bind_host`; if that is every address, return the machine's own name.

    Asks the resolver for that name. ConfigurationError if other hosts could not reach this one by the result.
    """
    given = settings.get_option(HOST)
    if given:
        if _is_every_address(given):
            raise ConfigurationError(HOST.key, given, "other hosts cannot connect to this address")
        return given
    if not _is_every_address(bind_host):
        return bind_host
    name = socket.gethostname()
    if not _leads_here(name):
        raise ConfigurationError(
            HOST.key,
            None,
            f"other hosts cannot connect to {bind_host}, at which the service listens, and the name of this machine, "
            f"'{name}', gives them no address of it: set the name or address by which clusters reach this host",
        )
    return name


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _leads_here(name: str) -> bool:
    """Return whether a name has an address that is not a loopback address."""
    try:
        found = socket.getaddrinfo(name, None)
    except OSError:
        return False
    return any(not is_loopback(str(each[4][0])) for each in found)
