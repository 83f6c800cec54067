"""Spark's master: finds and parses its URL, and checks that a standalone master or Kubernetes' API answers.

PySpark is not needed, so that a program's plan can be made without it. Settings that no host could obey are refused.
"""

import re
import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.request import getproxies

from headrace.cluster.task_executor.shuffle_service_loader import refuse_unknown_shuffle_service
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.graph.pipeline_options import PARALLELISM, PYTHON_EXECUTABLE, archive_interpreter
from headrace.metrics.reporters.reporter_setup import refuse_unusable_reporters
from headrace.spark.options import MASTER, SLOT_COUNT, SPARE_SLOT_COUNT

ACCEPTED: Final = "local[n], local-cluster[executors,cores,MiB], spark://host:port, yarn or k8s://https://host:port"
LOCAL_THREADS: Final = re.compile(r"local(?:\[\s*([0-9]{1,9}|\*)\s*(?:,\s*[0-9]+\s*)?\])?\Z")
LOCAL_CLUSTER: Final = re.compile(
    r"local-cluster\[\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*,\s*[0-9]{1,9}\s*\]\Z"
)
_STANDALONE: Final = re.compile(r"spark://(?P<places>[^/?#]+)\Z")
_PLACE: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:,]+):(?P<port>[0-9]{1,5})\Z")
_KUBERNETES: Final = re.compile(
    r"k8s://(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/]+)(?::(?P<port>[0-9]{1,5}))?(?:/|\Z)"
)
_KUBERNETES_PORTS: Final = {None: 443, "https": 443, "http": 80}
_SPARK_PREFIX: Final = "spark."
_MASTER_KEYS: Final = ("headrace.spark.master", "spark.master")
ConnectSocket = Callable[[tuple[str, int], float], socket.socket]


@dataclass(frozen=True)
class MasterKind:
    """Parsed master URL: `is_local` (everything on this host), and the threads or executors if the URL sets them."""

    is_local: bool
    thread_count: int | None = None
    executor_count: int | None = None
    cores_per_executor: int | None = None

    @property
    def is_single_process(self) -> bool:
        """Return whether tasks run in the driver's JVM (`local[n]`), where resource profiles are not supported."""
        return self.is_local and self.executor_count is None


def parse_master(master: str, cpu_count: int) -> MasterKind:
    """Parse a master URL. `cpu_count` replaces `*`."""
    threads = LOCAL_THREADS.match(master)
    if threads is not None:
        text = threads.group(1)
        count = 1 if text is None else cpu_count if text == "*" else int(text)
        return MasterKind(is_local=True, thread_count=count)
    cluster = LOCAL_CLUSTER.match(master)
    if cluster is not None:
        return MasterKind(
            is_local=True,
            executor_count=int(cluster.group(1)),
            cores_per_executor=int(cluster.group(2)),
        )
    return MasterKind(is_local=False)


class UnknownMasterError(HostError):
    """The text is not a master URL that Spark accepts."""

    def __init__(self, master: str) -> None:
        super().__init__(f"'{master}' is not a Spark master: use {ACCEPTED}")


class MasterUnreachableError(HostError):
    """The standalone master, or Kubernetes' API server, does not accept a connection."""

    def __init__(self, master: str, reason: str, timeout_s: float) -> None:
        shown = "its page shows" if standalone_places(master) else "'kubectl cluster-info' shows"
        super().__init__(
            f"Spark's master {master} cannot be reached ({reason}; headrace.spark.master-timeout is {timeout_s:g} s): "
            f"check that it is running, and that this is the address that {shown}; 'local[n]' runs on this machine "
            f"without a master"
        )


def refuse_unknown_master(master: str) -> None:
    """Raise UnknownMasterError for a text that Spark would refuse only after seconds, with pages of Java traces."""
    threads = LOCAL_THREADS.match(master)
    is_known = (
        (threads is not None and threads.group(1) != "0")
        or LOCAL_CLUSTER.match(master) is not None
        or master == "yarn"
        or re.match(r"k8s://\S", master) is not None
        or standalone_places(master) is not None
    )
    if not is_known:
        raise UnknownMasterError(master)


def standalone_places(master: str) -> tuple[tuple[str, int], ...] | None:
    """Return host and port of each master in `spark://a:7077,b:7077`, or None for another kind of URL."""
    standalone = _STANDALONE.match(master)
    if standalone is None:
        return None
    found = [_PLACE.match(place) for place in standalone.group("places").split(",")]
    places = tuple((one["host"].strip("[]"), int(one["port"])) for one in found if one is not None)
    return places if len(places) == len(found) and all(port < 65536 for _, port in places) else None


def api_server_place(master: str) -> tuple[str, int] | None:
    """Return host and port of Kubernetes' API server in `k8s://https://host:port`, or None for another kind of URL."""
    found = _KUBERNETES.match(master)
    if found is None:
        return None
    port = found["port"]
    return found["host"].strip("[]"), int(port) if port else _KUBERNETES_PORTS[found["scheme"]]


def refuse_unreachable_master(
    master: str, timeout_s: float, clock: Clock, connect: ConnectSocket = socket.create_connection
) -> None:
    """Raise MasterUnreachableError if no standalone master, or API server, accepts a connection within `timeout_s`.

    Clients of Kubernetes may reach it through a proxy: if one is set, nothing is tried.
    """
    server = None if getproxies() else api_server_place(master)
    places = standalone_places(master) if server is None else (server,)
    if places is None:
        return
    deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    reasons: list[str] = []
    for number, (host, port) in enumerate(places):
        # Those that come later must not starve behind one that is silent.
        share_s = (deadline_ns - clock.monotonic_ns()) / 1e9 / (len(places) - number)
        try:
            connect((host, port), max(0.1, share_s)).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise MasterUnreachableError(master, ", ".join(reasons), timeout_s)


def given_master(
    settings: Settings, environ: Mapping[str, str], submitted: Mapping[str, str]
) -> str:
    """Return the master that the user set, by option, by spark-submit or by Spark's own variable; else empty."""
    given = {**submitted, **given_by_user(settings)}
    return given.get("spark.master") or _master_of_arguments(environ)


def local_master(settings: Settings, cpu_count: int) -> str:
    """Return `local[n]`: n is the number of slots for TaskManagers plus spare ones for Spark's own jobs."""
    slots = embedded_slot_count(settings, cpu_count)
    return f"local[{slots + max(1, settings.get_option(SPARE_SLOT_COUNT))}]"


def embedded_slot_count(settings: Settings, cpu_count: int) -> int:
    """Return the number of TaskManagers an embedded session has room for."""
    slots = settings.get_option(SLOT_COUNT)
    if slots <= 0:
        slots = settings.get_option(PARALLELISM)
    return slots if slots > 0 else cpu_count


def given_by_user(settings: Settings) -> dict[str, str]:
    """Return the `spark.*` keys of `settings`, and the master and the interpreter under Spark's keys.

    An interpreter in an archive of a job is used only by that job.
    """
    executable = settings.get_option(PYTHON_EXECUTABLE)
    is_of_host = executable and not archive_interpreter(settings)
    given = {"spark.pyspark.python": executable} if is_of_host else {}
    given |= {key: value for key, value in settings.items() if key.startswith(_SPARK_PREFIX)}
    master = settings.get_option(MASTER)
    return {**given, "spark.master": master} if master else given


def _master_of_arguments(environ: Mapping[str, str]) -> str:
    """Return the master in PYSPARK_SUBMIT_ARGS, which Spark's launcher obeys too; else empty."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for index, word in enumerate(words):
        if word.startswith("--master="):
            return word.partition("=")[2]
        if word == "--master" and index + 1 < len(words):
            return words[index + 1]
    return ""


def refuse_unusable_host_settings(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError, or UnknownMasterError, for the first setting that no host can obey."""
    for key in _MASTER_KEYS:
        if settings.get(key):
            refuse_unknown_master(settings[key])
    refuse_unknown_shuffle_service(Settings(settings))
    refuse_unusable_reporters(Settings(settings))
