"""Plans a Spark session that Headrace creates: master, slots, addresses, directories. Pure."""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.config import Settings
from headrace.core.security.tls import is_loopback
from headrace.rest.options import REST_ADDRESS, REST_ALLOWED_HOSTS, REST_BIND_ADDRESS
from headrace.spark.master import given_by_user, given_master, local_master, parse_master
from headrace.spark.options import APPLICATION_NAME
from headrace.spark.session.authentication import PAGE_FILTERS, PAGE_SWITCH, without_unfit
from headrace.spark.session.checklist import SESSION_SETTINGS
from headrace.spark.session.class_archive import java_options

LOOPBACK: Final = "127.0.0.1"
SPARK_HOME: Final = "SPARK_HOME"
PYTHON_DAEMON: Final = "headrace.spark.python_daemon"
"""Module from which Spark forks its Python workers, with the modules they need preloaded."""
DRIVER_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SHARES_CLASSES: Final = re.compile("-Xshare|Shared|DumpLoadedClassList")
"""Java options about class archives: if the user sets one, the user's own archive is used."""


@dataclass(frozen=True)
class SessionPlan:
    """Plan of a session: Spark's configuration, and the environment variables to set before the JVM starts.

    A SPARK_HOME in `environment` must be created first, of links to the installed one. `has_page`: Spark's web page may
    be started later.
    """

    conf: Mapping[str, str]
    environment: Mapping[str, str]
    has_page: bool = False


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

    `submitted` are the settings of spark-submit (empty without it); they override Headrace's defaults, and
    `spark.*` keys of `settings` override both. `scratch` is a directory of this session only. `archive` holds the
    classes of the driver's JVM.
    """
    given = {**submitted, **given_by_user(settings)}
    master = given_master(settings, environ, submitted) or local_master(settings, cpu_count)
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
    if kind.is_local and not submitted and _is_interpreter(python, given, environ):
        # Elsewhere it is unknown whether the workers' interpreter finds the module before Spark has sent files to them.
        conf["spark.python.daemon.module"] = PYTHON_DAEMON
    has_page = not {PAGE_SWITCH, PAGE_FILTERS} & given.keys()
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
    return SessionPlan(conf, added, has_page)


def _is_interpreter(python: str, given: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Return whether workers run the interpreter `python`, on a system where processes with libraries may fork."""
    chosen = given.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or python
    return sys.platform == "linux" and chosen == python


@dataclass(frozen=True)
class DriverAddresses:
    """Address at which the control plane listens, and the host under which others reach it."""

    bound: str
    advertised: str


def driver_addresses(conf: Mapping[str, str], *, is_local: bool) -> DriverAddresses:
    """Return the driver's addresses from Spark's running configuration: Headrace listens where Spark does.

    `is_local`: all processes are on this host, whatever the configuration says.
    """
    # Spark writes addresses of IPv6 in brackets.
    advertised = LOOPBACK if is_local else conf["spark.driver.host"].strip("[]")
    if is_loopback(advertised):
        # A name may stand for two addresses, and port 0 for another port on each.
        return DriverAddresses(LOOPBACK if advertised == "localhost" else advertised, advertised)
    return DriverAddresses(
        conf.get("spark.driver.bindAddress", "").strip("[]") or advertised, advertised
    )


def settings_in_pod(
    settings: Settings,
    conf: Mapping[str, str],
    submitted: Mapping[str, str],
    addresses: DriverAddresses,
) -> Settings:
    """Return the settings of a driver in a pod made by spark-submit, with the names under which REST is reached.

    These names are unknown before. Clients get the name under which executors reach the driver, unless the user sets
    another: its address, or the name of its Service, which is the host in `submitted` and may be replaced in `conf`.
    """
    is_open = not is_loopback(settings.get_option(REST_BIND_ADDRESS))
    if not is_open or conf.get("spark.kubernetes.submitInDriver") != "true":
        return settings
    names = (
        settings.get_option(REST_ALLOWED_HOSTS),
        addresses.advertised,
        addresses.bound,
        submitted.get("spark.driver.host", ""),
    )
    return settings.with_values(
        {
            REST_ADDRESS.key: settings.get_option(REST_ADDRESS) or addresses.advertised,
            REST_ALLOWED_HOSTS.key: ",".join(dict.fromkeys(filter(None, names))),
        }
    )


def _add_java_options(
    conf: dict[str, str], key: str, temporary_directory: str, log_configuration: Path | None
) -> None:
    """Put the JVM's temporary files into a directory that ends with the session, even if the JVM is killed."""
    given = conf.get(key, "")
    options: list[str] = []
    if "java.io.tmpdir" not in given:
        options += [f"-Djava.io.tmpdir={temporary_directory}", "-XX:-UsePerfData"]
    if log_configuration is not None and "log4j" not in given:
        options.append(f"-Dlog4j2.configurationFile={log_configuration}")
    # Spark's launcher takes quotes and backslashes as a shell does.
    conf[key] = " ".join([*([given] if given else []), *map(shlex.quote, options)])
