"""Connection files, from which clients learn the address and the token of a cluster: `<home>/clusters/<port>.json`.

A cluster writes its file when its REST endpoint listens, and removes the file when it ends. Home is HEADRACE_HOME, or
`.headrace` in the user's own folder. The file contains the token, so that only its owner may access it and its folder;
a file that others could have read or written is not used. For a cluster on another machine the file is copied into the
same folder under any name, or its token is set in HEADRACE_TOKEN, which overrides the token of a file.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from headrace.core.config import Settings, parse_ports
from headrace.core.errors import DECODE_ERRORS, ConfigurationError
from headrace.core.host_port import join_host_port
from headrace.core.process.process_start import process_start_ms, start_ticks
from headrace.core.security.tls import is_loopback
from headrace.rest.client_errors import (
    ClusterRestartingError,
    ConnectionFileError,
    NoClusterError,
    NoSuchClusterError,
    SeveralClustersError,
)
from headrace.rest.home.home_folder import (
    headrace_home,
    read_private_file,
    write_private_file,
    writing_in_home,
)
from headrace.rest.home.supervisions import Supervision, restarting
from headrace.rest.options import REST_ADDRESS, REST_PORT

TOKEN_VARIABLE: Final = "HEADRACE_TOKEN"
DASHBOARD_SUFFIX: Final = ".html"
"""Suffix of the page next to a connection file that signs a browser in; it is deleted with the file."""
CERTIFICATE_SUFFIX: Final = ".pem"
"""Suffix of the certificate next to a connection file; it is deleted with the file."""
_DEFAULT_PORT: Final = 8081
_FILES_MAX: Final = 1_000
_CLOCK_MARGIN_MS: Final = 60_000
"""A process that started later than a cluster by more than this has reused its pid; less may be a clock change."""
_PORTS: Final = {"http": 80, "https": 443}

Notify = Callable[[str], None]


class ClusterConnection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of a connection file; a client without a file has only the address.

    `ca_file` is a PEM file with the certificates that verify an https address; unset: those of the system.
    In the file its path is relative to the file, so that both may be copied to another host.
    """

    address: str
    """Address, such as http://127.0.0.1:8081."""
    token: str = ""
    pid: int = 0
    """Process that ends with the cluster; 0 if it is on another machine."""
    name: str = ""
    started: int = 0
    """Time of the start, epoch ms."""
    ca_file: str = ""
    is_history: bool = False
    """True for a history server, which clients without an address use only if there is no cluster."""
    is_session: bool = False
    """True if the cluster accepts jobs of any client until it is stopped; other clusters belong to their program."""
    start_ticks: int = 0
    """Start of the process in kernel ticks, which distinguishes it from a later one with the same pid; 0: unknown."""
    cluster_id: str = ""
    """Id of the cluster that drivers with high availability lead in turn, or wait to lead; else empty."""
    epoch: int = 0
    """Epoch of the driver's leadership; 0 while such a driver stands by.

    It is larger than those of all leaders before, unless somebody has emptied the storage.
    """

    def __repr__(self) -> str:
        """Return a text of all fields but the token."""
        return f"ClusterConnection({self.address!r}, name={self.name!r}, pid={self.pid})"


class FoundConnection(msgspec.Struct, frozen=True):
    """A connection, and the origin of its token: a file, a variable, or nothing."""

    connection: ClusterConnection
    token_from: str = ""
    file: Path | None = None


def connections_folder() -> Path:
    """Return the folder of connection files."""
    return headrace_home() / "clusters"


def write_connection(connection: ClusterConnection) -> Path:
    """Write the file of a cluster in place of an earlier one for the same port, and return its path.

    ConnectionFileError if others can access the folder; HomeFolderError if it cannot be created.
    """
    folder = connections_folder()
    file = folder / f"{port_of(connection.address)}.json"
    with writing_in_home():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared_folder(folder)
        write_private_file(file, msgspec.json.encode(connection))
    return file


def remove_connection(file: Path) -> None:
    """Remove the file that this process has written; a file that a later cluster wrote in its place stays."""
    with contextlib.suppress(ConnectionFileError, OSError):
        connection = read_connection(file)
        if connection.pid == os.getpid():
            _delete(file, connection)


def _delete(file: Path, connection: ClusterConnection) -> None:
    """Delete a file, unless a new cluster has just replaced it."""
    with contextlib.suppress(FileNotFoundError):
        if read_connection(file) == connection:
            for suffix in (DASHBOARD_SUFFIX, CERTIFICATE_SUFFIX):
                file.with_suffix(suffix).unlink(missing_ok=True)
            file.unlink()


def address_of(settings: Settings) -> str | None:
    """Return the `host:port` or URL in the settings, None if they have none; `rest.address` may be either."""
    host = settings.get_option(REST_ADDRESS)
    if host is not None and ("://" in host or "]:" in host or host.count(":") == 1):
        return host
    if host is None and not settings.is_set(REST_PORT):
        return None
    port = _DEFAULT_PORT
    if settings.is_set(REST_PORT):
        ports = list(parse_ports(REST_PORT.key, settings.get_option(REST_PORT)))
        if len(ports) != 1:
            raise ConfigurationError(
                REST_PORT.key,
                settings.get_option(REST_PORT),
                "a client needs a single port, at which the cluster listens",
            )
        port = ports[0]
    return join_host_port(host or "127.0.0.1", port)


def find_connection(address: str | None, notify: Notify) -> FoundConnection:
    """Return the connection to the cluster at `address` (`host:port` or a URL), or to the only one of this machine.

    Drivers of one cluster with high availability count as one cluster, and the leader is returned. Files of ended
    clusters are removed, and `notify` is called with a line about it. An address without a file is used
    unchanged. HEADRACE_TOKEN, if it is set, is the token. NoClusterError; SeveralClustersError; ConnectionFileError;
    ClusterRestartingError.
    """
    found, refused = live_connections(notify)
    if address is not None:
        return _connection_to(address, found, refused)
    for error in refused:
        if found:
            notify(str(error))
    if not found:
        _refuse_restarting(restarting())
        raise refused[0] if refused else NoClusterError(connections_folder())
    found = _leaders([one for one in found if not one.connection.is_history] or found)
    _refuse_several(found, _others_away(found))
    return found[0]


def connection_in(file: Path) -> FoundConnection:
    """Return the connection of a file. ConnectionFileError if it cannot be used; FileNotFoundError."""
    return FoundConnection(read_connection(file), str(file), file)


def find_named(name: str, notify: Notify) -> FoundConnection:
    """Return the connection of the cluster of this machine that was started with the name `name`.

    NoSuchClusterError; SeveralClustersError; ConnectionFileError; ClusterRestartingError.
    """
    found, refused = live_connections(notify)
    return _only_one(found, refused, name, "cluster", notify)


def find_session(name: str | None, notify: Notify) -> FoundConnection:
    """Return the connection of this machine's session cluster with this name, or of the only one.

    NoSuchClusterError; SeveralClustersError; ConnectionFileError; ClusterRestartingError.
    """
    found, refused = live_connections(notify)
    sessions = [one for one in found if one.connection.is_session]
    return _only_one(sessions, refused, name, "session", notify)


def _only_one(
    found: list[FoundConnection],
    refused: list[ConnectionFileError],
    name: str | None,
    kind: str,
    notify: Notify,
) -> FoundConnection:
    wanted = _leaders([one for one in found if name is None or one.connection.name == name])
    for error in refused:
        notify(str(error))
    if not wanted:
        away = [one for one in restarting() if name in (None, one.name)]
        _refuse_restarting([one for one in away if one.is_session or kind != "session"])
        raise NoSuchClusterError(kind, name, [one.connection.name for one in found])
    away = [] if name is not None else _others_away(wanted)
    _refuse_several(wanted, [one for one in away if one.is_session or kind != "session"])
    return wanted[0]


def _others_away(found: list[FoundConnection]) -> list[Supervision]:
    """Return the supervisions of clusters that are restarting, except those whose cluster was found."""
    return restarting([one.connection.pid for one in found])


def _refuse_several(found: list[FoundConnection], away: list[Supervision]) -> None:
    """Raise SeveralClustersError if another cluster may be meant, including one whose driver is being restarted.

    A restarting driver with high availability never counts: the driver that was found leads its cluster, or the
    restarting one stands by.
    """
    returning = [one for one in away if not one.keeps_jobs]
    if len(found) + len(returning) > 1:
        raise SeveralClustersError(
            [*(_line_of(one) for one in found), *map(_returning_line, returning)]
        )


def _returning_line(supervision: Supervision) -> str:
    return f"{supervision.name}, which process {supervision.pid} is restarting"


def _refuse_restarting(away: list[Supervision]) -> None:
    """Raise ClusterRestartingError if the requested cluster is restarting.

    SeveralClustersError if several may be meant.
    """
    if len(away) > 1:
        raise SeveralClustersError([_returning_line(one) for one in away])
    if away:
        raise ClusterRestartingError(away[0])


def _leaders(found: list[FoundConnection]) -> list[FoundConnection]:
    """Return one driver of each cluster: of several that claim to lead, the one with the newest lease.

    Epochs begin again in a storage folder that was emptied: of two drivers with the same epoch the later started
    one leads. A frozen driver with a larger epoch, from before that, counts as the leader for as long as it lives.
    """
    newest: dict[str, FoundConnection] = {}
    for one in sorted(found, key=lambda each: (each.connection.epoch, each.connection.started)):
        newest[one.connection.cluster_id or one.connection.address] = one
    return [one for one in found if one in newest.values()]


def has_ended(found: FoundConnection) -> bool:
    """Return whether a connection's cluster is known to be gone, as its file or its process is gone."""
    if found.file is None:
        return False
    try:
        there = structs.replace(
            read_connection(found.file),
            token=found.connection.token,
            epoch=found.connection.epoch,
        )
        return there != found.connection or _is_dead(found.connection)
    except FileNotFoundError:
        return True
    except ConnectionFileError:
        return False


def live_addresses() -> list[str]:
    """Return `host:port` of the clusters that a client would find, for shell completion."""
    with contextlib.suppress(OSError, ConnectionFileError):
        return [_authority(one.connection.address) for one in live_connections(lambda _: None)[0]]
    return []


def live_connections(notify: Notify) -> tuple[list[FoundConnection], list[ConnectionFileError]]:
    """Return the connections of running clusters, and the errors of files that are not used.

    Files of ended clusters are removed, and `notify` is called with a line about it. ConnectionFileError if others
    can access the folder.
    """
    folder = connections_folder()
    if not folder.is_dir():
        return [], []
    _refuse_shared_folder(folder)
    found: list[FoundConnection] = []
    refused: list[ConnectionFileError] = []
    # A token set for this command overrides files.
    token = _given_token()
    for file in sorted(folder.glob("*.json"))[:_FILES_MAX]:
        if file.name.startswith("."):
            continue
        try:
            connection = read_connection(file)
        except FileNotFoundError:
            continue  # its cluster has ended this moment
        except ConnectionFileError as error:
            refused.append(error)
            continue
        if _is_dead(connection):
            _delete(file, connection)
            notify(
                f"removed {file}: the cluster at {connection.address} has ended (process {connection.pid})"
            )
            continue
        if token:
            connection = structs.replace(connection, token=token)
        found.append(FoundConnection(connection, TOKEN_VARIABLE if token else str(file), file))
    return found, refused


def _given_token() -> str:
    # Blanks around the token come from the file that it was read from.
    return os.environ.get(TOKEN_VARIABLE, "").strip()


def _connection_to(
    address: str, found: list[FoundConnection], refused: list[ConnectionFileError]
) -> FoundConnection:
    wanted = _place(address)
    for one in found:
        if _place(one.connection.address) == wanted:
            return one
    for error in refused:
        # A file that others could read must not be silently replaced by no token.
        if error.file.stem == str(wanted[1]):
            raise error
    token = _given_token()
    if "://" not in address:
        # A token must not be sent in clear text over a network.
        scheme = "https" if token and not is_loopback(wanted[0]) else "http"
        address = f"{scheme}://{address}"
    return FoundConnection(
        ClusterConnection(address.rstrip("/"), token), TOKEN_VARIABLE if token else ""
    )


def read_connection(file: Path) -> ClusterConnection:
    """Read a file that only its owner could read and write. ConnectionFileError; FileNotFoundError."""
    try:
        connection = msgspec.json.decode(read_private_file(file), type=ClusterConnection)
        port_of(connection.address)
    except (*DECODE_ERRORS, ConfigurationError) as error:
        raise ConnectionFileError(file, f"the file is damaged: {error}") from error
    if connection.ca_file:
        return structs.replace(connection, ca_file=str(file.parent / connection.ca_file))
    return connection


def _refuse_shared_folder(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise ConnectionFileError(folder, f"another user ({status.st_uid}) owns the folder")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConnectionFileError(
            folder, "users other than its owner may access the folder: chmod 700"
        )


def _is_dead(connection: ClusterConnection) -> bool:
    # The process of a cluster on another machine is unknown here.
    if connection.pid <= 0 or not is_loopback(_place(connection.address)[0]):
        return False
    if connection.start_ticks:
        # Another process may have its number by now.
        return start_ticks(connection.pid) != connection.start_ticks
    # Older versions wrote no start.
    try:
        os.kill(connection.pid, 0)
    except (ProcessLookupError, PermissionError):
        # No process has its pid any more, or one of another user, who could not have written the file.
        return True
    except OverflowError:
        return False
    if not start_ticks(connection.pid):
        # It has ended, and its parent has not reaped it yet; unless processes cannot be inspected here.
        return start_ticks(os.getpid()) != 0
    began_ms = process_start_ms(connection.pid)
    return 0 < connection.started < began_ms - _CLOCK_MARGIN_MS


def port_of(address: str) -> int:
    """Return the port of an address. ConfigurationError if there is none."""
    return _place(address)[1]


def _place(address: str) -> tuple[str, int]:
    """Return host and port, with one common name for this machine's loopback."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    is_known = parts.scheme in ("", *_PORTS)
    if not is_known or not parts.hostname or port is None or parts.username is not None:
        raise ConfigurationError(
            "-m", address, "an address is host:port, or a URL of http or https"
        )
    return "127.0.0.1" if is_loopback(parts.hostname) else parts.hostname, port


def _line_of(found: FoundConnection) -> str:
    return f"-m {_authority(found.connection.address)}  {found.connection.name}".rstrip()


def _authority(address: str) -> str:
    return urlsplit(address).netloc
