"""The start-up checklist: settings that a Spark application needs before it may host TaskManagers.

Pure: takes Spark's configuration as a mapping and returns findings. All rules were measured or read in the source of
Spark 4.3; each finding says why. Source: docs/adr, Spark's configuration table.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import HostError
from headrace.core.redaction import PRIVATE_KEYS
from headrace.spark.session.authentication import (
    AUTHENTICATION,
    REDACTION,
    exposure,
    is_true,
    unredacted,
)

HOSTING_SETTINGS: Final[Mapping[str, str]] = {
    "spark.speculation": "false",
    "spark.excludeOnFailure.enabled": "false",
    "spark.python.worker.idleTimeoutSeconds": "0",
    "spark.python.worker.killOnIdleTimeout": "false",
    **AUTHENTICATION,
    # Spark's own default shows keys of some stores on its web page and in its event log.
    REDACTION: PRIVATE_KEYS,
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.executor.heartbeatInterval": "10s",
    "spark.network.timeout": "120s",
    # Otherwise YARN and Kubernetes wait up to 30 s for most executors before the first task.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    # A TaskManager has no preferred place.
    "spark.locality.wait": "0s",
    # Its bars would stand for TaskManagers, whose tasks do not end.
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that TaskManagers need or benefit from, unless the user gave another value."""

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    **HOSTING_SETTINGS,
    # Its page knows no password, and listens beyond this host: WebPage is another.
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # Else every `createDataFrame` and `save` may ask a metastore; a session of ours has none.
    "spark.sql.catalogImplementation": "in-memory",
}
"""Further settings of a session that Headrace creates; no user program depends on their defaults."""

_KILL_ON_IDLE: Final = (
    "spark.python.worker.killOnIdleTimeout",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
)


class Severity(enum.Enum):
    """Severity of a finding: Headrace starts with a warning, or refuses to start."""

    REFUSED = "REFUSED"
    WARNING = "WARNING"


@dataclass(frozen=True)
class Finding:
    """A requirement of the checklist that the configuration does not meet."""

    severity: Severity
    key: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}: {self.reason}"


class ChecklistError(HostError):
    """This Spark application's settings contradict the needs of TaskManagers."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first, *rest = (str(finding) for finding in findings)
        super().__init__("\n".join([f"this Spark session cannot host Headrace: {first}", *rest]))
        self.findings = findings


def check_configuration(
    conf: Mapping[str, str], *, allows_unauthenticated: bool = False
) -> tuple[Finding, ...]:
    """Return every finding about Spark's configuration `conf`, refusals first.

    `allows_unauthenticated`: the user accepts Spark ports without a secret if only this host reaches them.
    """
    findings = [
        *_refusals(conf),
        *_exposure(conf, allows_unauthenticated=allows_unauthenticated),
        *_warnings(conf),
    ]
    return tuple(sorted(findings, key=lambda finding: finding.severity is not Severity.REFUSED))


def _refusals(conf: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    if is_true(conf, "spark.speculation"):
        found.append(
            _refuse(
                conf,
                "spark.speculation",
                "Spark would start a second copy of a TaskManager that looks slow, and both would own its slots; "
                "set it to false",
            )
        )
    for key in _KILL_ON_IDLE:
        if is_true(conf, key):
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
                "Spark applies it as a limit of address space, so that threads, memory maps and shared memory of a "
                "TaskManager, or of a stage in BATCH mode, fail long before memory is short; unset it, give executors "
                "room by spark.executor.memoryOverhead, and bound each Python worker by "
                "headrace.taskmanager.memory.limit",
            )
        )
    if conf.get("spark.remote", "") != "":
        found.append(
            _refuse(
                conf,
                "spark.remote",
                "with Spark Connect this process has no driver that executors could reach; run the program by "
                "spark-submit, or with a master URL",
            )
        )
    key = unredacted(conf)
    if key is not None:
        found.append(
            _refuse(
                conf,
                REDACTION,
                f"Spark's event log would contain the value of {key}, with which its readers could run code as you; "
                "unset it, or let it match 'secret' in any case: (?i)secret|password|token|…",
            )
        )
    return found


def _exposure(conf: Mapping[str, str], *, allows_unauthenticated: bool) -> list[Finding]:
    found = exposure(conf, allows_unauthenticated=allows_unauthenticated)
    if found is None:
        return []
    severity = Severity.WARNING if found.is_allowed else Severity.REFUSED
    return [Finding(severity, found.key, conf.get(found.key, "false"), found.reason)]


def _warnings(conf: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    if is_true(conf, "spark.excludeOnFailure.enabled"):
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


def refuse_contradictions(
    conf: Mapping[str, str], *, allows_unauthenticated: bool = False
) -> tuple[Finding, ...]:
    """Raise ChecklistError if the configuration contradicts Headrace's needs; return the warnings.

    The parameters are those of `check_configuration`.
    """
    findings = check_configuration(conf, allows_unauthenticated=allows_unauthenticated)
    refused = tuple(one for one in findings if one.severity is Severity.REFUSED)
    if refused:
        raise ChecklistError(refused)
    return findings


def _refuse(conf: Mapping[str, str], key: str, reason: str) -> Finding:
    return Finding(Severity.REFUSED, key, conf[key], reason)
