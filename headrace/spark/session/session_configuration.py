"""Decides how a Spark session that Headrace creates is set up: master, slots, addresses, directories. Pure.

Settings that no host could obey are refused before Spark is started.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cluster.task_executor.shuffle_service_loader import refuse_unknown_shuffle_service
from headrace.core.config import Settings
from headrace.core.security.tls import is_loopback
from headrace.graph.pipeline_options import PARALLELISM, PYTHON_EXECUTABLE
from headrace.spark.options import APPLICATION_NAME, MASTER, SLOT_COUNT, SPARE_SLOT_COUNT
from headrace.spark.session.authentication import without_unfit
from headrace.spark.session.checklist import SESSION_SETTINGS
from headrace.spark.session.class_archive import java_options
from headrace.spark.session.master import parse_master, refuse_unknown_master

LOOPBACK: Final = "127.0.0.1"
SPARK_HOME: Final = "SPARK_HOME"
DRIVER_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SPARK_PREFIX: Final = "spark."
_SHARES_CLASSES: Final = re.compile("-Xshare|Shared|DumpLoadedClassList")
"""Java options about archives of classes: with one of them the user's own archive is used."""
_MASTER_KEYS: Final = ("headrace.spark.master", "spark.master")


@dataclass(frozen=True)
class SessionPlan:
    """Plan of a session: Spark's configuration, and the environment variables to set before the JVM starts.

    A SPARK_HOME in `environment` is to be made first, of links to the installed one.
    """

    conf: Mapping[str, str]
    environment: Mapping[str, str]


def plan_session(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    cpu_count: int,
    python: str,
    scratch: Path,
    log_configuration: Path | None,
    submitted: Mapping[str, str],
    archive: Path | None = None,
) -> SessionPlan:
    """Return the plan of a new session.

    `submitted` is what spark-submit has set already (empty for a plain program); it wins over our defaults, and
    `spark.*` keys of `settings` win over both. `scratch` is a directory of this session alone. `archive` holds the
    classes of the driver's JVM.
    """
    given = {**submitted, **given_by_user(settings)}
    master = (
        given.get("spark.master")
        or _master_of_arguments(environ)
        or local_master(settings, cpu_count)
    )
    conf: dict[str, str] = {
        "spark.app.name": settings.get_option(APPLICATION_NAME),
        **SESSION_SETTINGS,
        "spark.local.dir": str(scratch),
    }
    environment = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    kind = parse_master(master, cpu_count)
    if kind.is_local:
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        environment |= {"SPARK_LOCAL_IP": LOOPBACK}
    conf |= given
    conf["spark.master"] = master
    conf = without_unfit(conf, given)
    _add_java_options(conf, DRIVER_JAVA_OPTIONS, str(scratch), log_configuration)
    if archive is not None and not _SHARES_CLASSES.search(conf[DRIVER_JAVA_OPTIONS]):
        conf[DRIVER_JAVA_OPTIONS] += f" {java_options(archive)}"
    if not kind.is_single_process:
        # An executor's working directory is its own and goes with the application.
        _add_java_options(conf, "spark.executor.extraJavaOptions", ".", None)
    added = {key: value for key, value in environment.items() if not environ.get(key)}
    if "spark.pyspark.python" in given:
        # Spark obeys the setting before the variable, but its Python library reads only the latter.
        added["PYSPARK_PYTHON"] = given["spark.pyspark.python"]
    if kind.is_local and not kind.is_single_process and not submitted:
        # The JVM of spark-submit runs already, with the home that the user gave it.
        added[SPARK_HOME] = str(scratch / "spark")
    return SessionPlan(conf, added)


@dataclass(frozen=True)
class DriverAddresses:
    """Address at which the control plane listens, and the host under which others reach it."""

    bound: str
    advertised: str


def driver_addresses(conf: Mapping[str, str], *, is_local: bool) -> DriverAddresses:
    """Return the driver's address by Spark's running configuration: Headrace listens where Spark does.

    `is_local`: nobody is on another host, whatever the configuration says.
    """
    # Spark writes addresses of IPv6 in brackets.
    advertised = LOOPBACK if is_local else conf["spark.driver.host"].strip("[]")
    if is_loopback(advertised):
        # A name may stand for two addresses, and port 0 for another port on each.
        return DriverAddresses(LOOPBACK if advertised == "localhost" else advertised, advertised)
    return DriverAddresses(
        conf.get("spark.driver.bindAddress", "").strip("[]") or advertised, advertised
    )


def given_master(
    settings: Settings, environ: Mapping[str, str], submitted: Mapping[str, str]
) -> str:
    """The master that the user named, by option, by spark-submit or by Spark's own variable; else empty."""
    given = {**submitted, **given_by_user(settings)}
    return given.get("spark.master") or _master_of_arguments(environ)


def local_master(settings: Settings, cpu_count: int) -> str:
    """Return `local[n]`: n = slots for TaskManagers, plus spare ones for Spark's own jobs."""
    slots = embedded_slot_count(settings, cpu_count)
    return f"local[{slots + max(1, settings.get_option(SPARE_SLOT_COUNT))}]"


def embedded_slot_count(settings: Settings, cpu_count: int) -> int:
    """Return the number of TaskManagers an embedded session has room for."""
    slots = settings.get_option(SLOT_COUNT)
    if slots <= 0:
        slots = settings.get_option(PARALLELISM)
    return slots if slots > 0 else cpu_count


def given_by_user(settings: Settings) -> dict[str, str]:
    """Return the `spark.*` keys of `settings`, and the master and the interpreter by the names that Spark has."""
    executable = settings.get_option(PYTHON_EXECUTABLE)
    given = {"spark.pyspark.python": executable} if executable else {}
    given |= {key: value for key, value in settings.items() if key.startswith(_SPARK_PREFIX)}
    master = settings.get_option(MASTER)
    return {**given, "spark.master": master} if master else given


def _master_of_arguments(environ: Mapping[str, str]) -> str:
    """The master in PYSPARK_SUBMIT_ARGS, which Spark's launcher obeys too."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for index, word in enumerate(words):
        if word.startswith("--master="):
            return word.partition("=")[2]
        if word == "--master" and index + 1 < len(words):
            return words[index + 1]
    return ""


def _add_java_options(
    conf: dict[str, str], key: str, temporary_directory: str, log_configuration: Path | None
) -> None:
    """Keep the JVM's temporary files where they end with the session, even if the JVM is killed."""
    given = conf.get(key, "")
    options: list[str] = []
    if "java.io.tmpdir" not in given:
        options += [f"-Djava.io.tmpdir={temporary_directory}", "-XX:-UsePerfData"]
    if log_configuration is not None and "log4j" not in given:
        options.append(f"-Dlog4j2.configurationFile={log_configuration}")
    # Spark's launcher takes quotes and backslashes as a shell does.
    conf[key] = " ".join([*([given] if given else []), *map(shlex.quote, options)])


def refuse_unusable_host_settings(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError, or UnknownMasterError, for the first that cannot be."""
    for key in _MASTER_KEYS:
        if settings.get(key):
            refuse_unknown_master(settings[key])
    refuse_unknown_shuffle_service(Settings(settings))
