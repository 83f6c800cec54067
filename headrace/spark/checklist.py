"""The start-up checklist: what a Spark application must be set to before it may host TaskManagers.

Pure: takes Spark's configuration as a mapping and returns findings. Everything here was measured or read in Spark
4.3; each finding says why. Source: docs/adr, Spark's configuration table.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import HostError

HOSTING_SETTINGS: Final[Mapping[str, str]] = {
    "spark.speculation": "false",
    "spark.excludeOnFailure.enabled": "false",
    "spark.python.worker.idleTimeoutSeconds": "0",
    "spark.python.worker.killOnIdleTimeout": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.executor.heartbeatInterval": "10s",
    "spark.network.timeout": "120s",
    # Else YARN and Kubernetes wait up to 30 s for most executors before the first task.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    # A TaskManager has no preferred place.
    "spark.locality.wait": "0s",
    # Its bars would stand for TaskManagers, whose tasks do not end.
    "spark.ui.showConsoleProgress": "false",
}
"""What TaskManagers need or profit from, unless the user gave another value."""

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    **HOSTING_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # Else every `createDataFrame` and `save` may ask a metastore; a session of ours has none.
    "spark.sql.catalogImplementation": "in-memory",
}
"""What a session that we create is given besides, where no program has one of its own to rely on."""

_KILL_ON_IDLE: Final = (
    "spark.python.worker.killOnIdleTimeout",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
)
_ENCRYPTION: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
LOCAL_THREADS: Final = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*(?:,\s*[0-9]+\s*)?\])?\Z")
LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*[0-9]+\s*\]\Z")


class Severity(enum.Enum):
    """Whether Headrace starts in spite of a finding."""

    REFUSED = "REFUSED"
    WARNING = "WARNING"


@dataclass(frozen=True)
class Finding:
    """One item of the checklist that the configuration does not meet."""

    severity: Severity
    key: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}: {self.reason}"


class ChecklistError(HostError):
    """This Spark application contradicts what TaskManagers need."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first, *rest = (str(finding) for finding in findings)
        super().__init__("\n".join([f"this Spark session cannot host Headrace: {first}", *rest]))
        self.findings = findings


@dataclass(frozen=True)
class MasterKind:
    """What the master URL says: `is_local` (everything on this host), threads or executors where it fixes them."""

    is_local: bool
    thread_count: int | None = None
    executor_count: int | None = None
    cores_per_executor: int | None = None

    @property
    def is_single_process(self) -> bool:
        """Whether tasks run beside the driver's JVM (`local[n]`), where resource profiles are refused."""
        return self.is_local and self.executor_count is None


def parse_master(master: str, cpu_count: int) -> MasterKind:
    """Read a master URL. `cpu_count` stands for `*`."""
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


def check_configuration(conf: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return every finding about Spark's configuration `conf`, refusals first."""
    findings = [*_refusals(conf), *_warnings(conf)]
    return tuple(sorted(findings, key=lambda finding: finding.severity is not Severity.REFUSED))


def _refusals(conf: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    if _is_true(conf, "spark.speculation"):
        found.append(
            _refuse(
                conf,
                "spark.speculation",
                "Spark would start a second copy of a TaskManager that looks slow, and both would own its slots; "
                "set it to false",
            )
        )
    for key in _KILL_ON_IDLE:
        if _is_true(conf, key):
            found.append(
                _refuse(
                    conf,
                    key,
                    "a TaskManager exchanges nothing with its JVM for days, so Spark would kill it as idle; "
                    "set it to false",
                )
            )
    if conf.get("spark.executor.pyspark.memory", "") not in ("", "0"):
        found.append(
            _refuse(
                conf,
                "spark.executor.pyspark.memory",
                "Spark makes it a limit of address space, under which threads, memory maps and shared memory of a "
                "TaskManager fail long before memory is short; unset it and use spark.executor.memoryOverhead",
            )
        )
    if conf.get("spark.remote", "") != "":
        found.append(
            _refuse(
                conf,
                "spark.remote",
                "Spark Connect has no driver process of ours that executors could reach; run the program by "
                "spark-submit, or with a master URL",
            )
        )
    return found


def _warnings(conf: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    master = conf.get("spark.master", "")
    kind = parse_master(master, 1)
    if not kind.is_local and not any(_is_true(conf, key) for key in _ENCRYPTION):
        found.append(
            Finding(
                Severity.WARNING,
                "spark.network.crypto.enabled",
                conf.get("spark.network.crypto.enabled", "false"),
                "the cluster's secret and key travel to the executors in clear text; set it to true (with "
                "spark.authenticate) or encrypt Spark's RPC",
            )
        )
    if _is_true(conf, "spark.excludeOnFailure.enabled"):
        found.append(
            Finding(
                Severity.WARNING,
                "spark.excludeOnFailure.enabled",
                "true",
                "a job's own errors may ban hosts for everyone; the ResourceManager decides where to restart",
            )
        )
    if conf.get("spark.python.worker.faulthandler.enabled", "false").lower() != "true":
        found.append(
            Finding(
                Severity.WARNING,
                "spark.python.worker.faulthandler.enabled",
                conf.get("spark.python.worker.faulthandler.enabled", "false"),
                "a native crash of a TaskManager will leave no stack; set it to true",
            )
        )
    return found


def refuse_contradictions(conf: Mapping[str, str]) -> tuple[Finding, ...]:
    """Raise ChecklistError where the configuration contradicts us; return the warnings."""
    findings = check_configuration(conf)
    refused = tuple(one for one in findings if one.severity is Severity.REFUSED)
    if refused:
        raise ChecklistError(refused)
    return findings


def _is_true(conf: Mapping[str, str], key: str) -> bool:
    return conf.get(key, "false").strip().lower() == "true"


def _refuse(conf: Mapping[str, str], key: str, reason: str) -> Finding:
    return Finding(Severity.REFUSED, key, conf[key], reason)
