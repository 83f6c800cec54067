"""Options of a TaskManager, and TaskManagerConfiguration: everything that a host passes to it.

Keys and defaults are Flink's if the meaning is the same. The module imports little, because the driver makes
configurations too and needs no data plane.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption
from headrace.core.ids import ResourceId
from headrace.core.security.tls import TlsIdentity

NUMBER_OF_TASK_SLOTS: Final = ConfigOption(
    "taskmanager.numberOfTaskSlots",
    int,
    1,
    "Number of slots of one TaskManager; 1 by default, because the interpreter runs one thread at a time.",
)
CPU_CORES: Final = ConfigOption(
    "taskmanager.cpu.cores",
    float,
    0.0,
    "Number of host cores that one TaskManager uses, divided equally among its slots; 0: those that the host gives a "
    "task.",
)
RESOURCE_ID: Final = ConfigOption(
    "taskmanager.resource-id",
    str,
    "",
    "Name of a TaskManager.",
    refused="all TaskManagers of a cluster have one configuration, and two with one name would replace each other; "
    "leave the option out: each has its own name, ending in '-tm-<number>', in REST, metrics and log files, and "
    "Spark describes its job with it",
)
OWN_INTERPRETER: Final = ConfigOption(
    "headrace.taskmanager.python-executable",
    str,
    "",
    "Set by the cluster for a TaskManager that runs with the `python.executable` of a job instead of its own.",
)
SLOT_TIMEOUT: Final = ConfigOption(
    "taskmanager.slot.timeout",
    timedelta,
    timedelta(seconds=30),
    "Time for which a slot waits for its JobMaster before it is free again; covers the JobMaster's start.",
)
REGISTRATION_TIMEOUT: Final = ConfigOption(
    "taskmanager.registration.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which a TaskManager that is not registered anywhere ends.",
)


@dataclass(frozen=True)
class TaskManagerConfiguration:
    """Configuration of a TaskManager process, in plain values that can be passed to processes.

    `advertised_host` is the name or address by which others reach this host. `attempt_number` is the host's count
    of starts of this worker: the ResourceManager refuses every rerun. `versions` are reported instead of the process's
    own versions. `tls` is the cluster's identity if its TCP connections are TLS. `scratch_directory` is this process's
    own, if its host provides one; `log_folder` is where it writes its log, or None. `external_resources`: the
    addresses of those that the host reserves for it, by name.
    """

    resource_id: ResourceId
    leader_retrieval_address: str
    secret: bytes = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    socket_directory: Path | None = None
    attempt_number: int = 0
    versions: Mapping[str, str] | None = None
    tls: TlsIdentity | None = None
    scratch_directory: Path | None = None
    log_folder: Path | None = None
    external_resources: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
