"""The SparkSession that hosts the cluster: the program's own if it has one, else created with the needed settings.

Actions may be registered for the end of the session, whoever stops it. A session on `local-cluster` gets a Spark home
of its own, made of links to Spark's installation and a `work` folder that ends with the session: the workers of
`local-cluster` put the directories of executors into `work` of the driver's SPARK_HOME, whatever their settings say.
Source: https://github.com/apache/spark, core/src/main/scala/org/apache/spark/deploy/worker/Worker.scala
"""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, find_spark_home
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.api.executors import default_settings
from headrace.cluster.task_executor.shuffle_service_loader import refuse_unknown_shuffle_service
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.core.redaction import without_private_values
from headrace.metrics.reporters.reporter_setup import refuse_unusable_reporters
from headrace.spark.master import (
    given_by_user,
    given_master,
    parse_master,
    refuse_unknown_master,
    refuse_unreachable_master,
)
from headrace.spark.options import MASTER_TIMEOUT
from headrace.spark.session.authentication import (
    ALLOW_UNAUTHENTICATED,
    SPARK_SECRET_FILE,
    missing_page_key,
    missing_secret,
)
from headrace.spark.session.checklist import refuse_contradictions
from headrace.spark.session.class_archive import class_archive
from headrace.spark.session.java_runtime import JavaRuntime, ensure_java, user_cache_directory
from headrace.spark.session.jvm import (
    DeferredInterrupts,
    JvmErrors,
    active_context,
    delete_at_jvm_exit,
    has_jvm_ended,
    is_stopped,
    silence_accumulators,
    silence_py4j,
    stop_context,
    stop_jvm,
)
from headrace.spark.session.session_configuration import (
    SPARK_HOME,
    plan_session,
)
from headrace.spark.session.spark_errors import root_message
from headrace.spark.session.web_page import WebPage

_LOG: Final = logging.getLogger(__name__)
WORK: Final = "work"
_JVM_ENDED: Final = (
    "its JVM ended during the start: it was killed, as when memory is short, or it crashed"
)


def before_stop(context: SparkContext, action: Callable[[], None]) -> Callable[[], None]:
    """Run `action` once, right before `context` is stopped, in the same thread; return a function that cancels this.

    Spark notifies Python of a session's end only afterwards, if at all: so this replaces the context's own `stop`.
    Errors of `action` are logged, and the context is stopped.
    """
    stop = context.stop

    def act_and_stop() -> None:
        take_back()
        try:
            action()
        except Exception:
            _LOG.exception(
                "the jobs in the SparkSession could not be ended before the session stops"
            )
        finally:
            stop()

    def take_back() -> None:
        if context.__dict__.get("stop") is act_and_stop:
            del context.stop

    context.stop = act_and_stop
    return take_back


def link_spark_home(installed: Path, home: Path) -> None:
    """Create `home` as a Spark home with everything of `installed` except leftovers of executors.

    Raises OSError if `home` exists already or cannot be created.
    """
    home.mkdir()
    for entry in installed.resolve().iterdir():
        if entry.name != WORK:
            (home / entry.name).symlink_to(entry)


_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")


class SparkStartError(HostError):
    """Spark did not start."""

    def __init__(self, master: str, reason: str) -> None:
        super().__init__(f"Spark did not start on master {master}: {reason}")


@dataclass
class HostSession:
    """A session, and whether Headrace created it and stops it.

    `scratch` is the folder of its files, None if it is the program's. `is_embedded`: a `local[n]` whose size Headrace
    chose. `given`: the settings it was created with. `environment_before`: variables that were set for it, and their
    former values. `page`: Spark's web page, if it may be started.
    """

    spark: SparkSession
    is_borrowed: bool
    scratch: Path | None = None
    is_embedded: bool = False
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    environment_before: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    page: WebPage | None = None
    _is_stopped: bool = False

    @property
    def context(self) -> SparkContext:
        """Return the SparkContext behind the session."""
        return self.spark.sparkContext

    def stop(self) -> None:
        """Stop a session that was created here and remove its files; the program's own stays as it is."""
        if self.is_borrowed or self._is_stopped:
            return
        is_over = is_stopped(self.context)
        if is_over and active_context() is not None:
            # The program stopped it, and made one of its own in the same JVM: what was set for it is needed.
            return
        self._is_stopped = True
        if not is_over:
            try:
                self.spark.stop()
            except Exception as error:  # the JVM may be gone, which is what we want
                _LOG.debug("stopping Spark: %s", error)
        stop_jvm()
        _restore_environment(self.environment_before)
        if self.scratch is not None:
            remove_scratch_folder(self.scratch)


class _Current:
    """The one session of this process that Headrace created."""

    lock: Final = threading.Lock()
    session: HostSession | None = None


def host_session(settings: Settings) -> HostSession:
    """Return the session to run on: the program's own, or one that is created on first use.

    Raises ChecklistError if it cannot host TaskManagers, HostError on Spark Connect.
    """
    with _Current.lock:
        created = _Current.session
        if created is not None and _is_alive(created.spark):
            return created
        active = _active_session()
        if active is not None:
            _log_warnings(
                refuse_and_describe(dict(active.sparkContext.getConf().getAll()), settings)
            )
            _use_this_interpreter(active.sparkContext)
            return HostSession(active, is_borrowed=True)
        if created is not None:
            # Its JVM ends too, as the next session may need another start configuration.
            created.stop()
        _Current.session = _create(settings)
        return _Current.session


def planned_or_running_master(settings: Settings) -> str | None:
    """Return the master of the session that jobs would run on, or None if an embedded one would be created."""
    created = _Current.session
    if created is not None and _is_alive(created.spark):
        return None if created.is_embedded else created.context.master
    active = _active_session()
    if active is not None:
        return active.sparkContext.master
    return given_master(settings, os.environ, _submitted_configuration()) or None


def refuse_and_describe(conf: Mapping[str, str], settings: Settings) -> tuple[str, ...]:
    """Raise ChecklistError for a configuration that contradicts Headrace's needs; return the texts of the warnings."""
    findings = refuse_contradictions(
        conf, allows_unauthenticated=settings.get_option(ALLOW_UNAUTHENTICATED)
    )
    return tuple(str(finding) for finding in findings)


def is_connect_client() -> bool:
    """Return whether sessions of this process belong to a Spark Connect server."""
    return bool(os.environ.get("SPARK_REMOTE")) or "SPARK_CONNECT_MODE_ENABLED" in os.environ


def _active_session() -> SparkSession | None:
    if is_connect_client():
        raise HostError(
            "Spark Connect cannot host a job: its client has no driver that executors could reach; submit the "
            "program to a session cluster next to the Connect server (headrace cluster start, then headrace run "
            "--target session), or have a cluster started for it (--target per-job), or run it by spark-submit, or "
            "with --master and without "
            "SPARK_REMOTE"
        )
    active = SparkSession.getActiveSession()
    if active is not None and _is_alive(active):
        return active
    context = active_context()
    return None if context is None else SparkSession(context)


def _use_this_interpreter(context: SparkContext) -> None:
    """Have workers on this machine use this interpreter if the user chose none: Spark takes `python3` of the PATH."""
    is_chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().contains(
        "spark.pyspark.python"
    )
    if parse_master(str(context.master), 1).is_local and not is_chosen:
        context.pythonExec = sys.executable


def _is_alive(spark: SparkSession) -> bool:
    return not is_stopped(spark.sparkContext)


def _create(settings: Settings) -> HostSession:
    refuse_unknown_shuffle_service(settings)
    refuse_unusable_reporters(settings)
    named = given_master(settings, os.environ, {})
    if named:
        refuse_unknown_master(named)
        timeout_s = settings.get_option(MASTER_TIMEOUT).total_seconds()
        refuse_unreachable_master(named, timeout_s, SystemClock())
    java = ensure_java()
    submitted = _submitted_configuration()
    scratch = make_scratch_folder("headrace-")
    plan = plan_session(
        settings,
        os.environ,
        cpu_count=os.cpu_count() or 1,
        python=sys.executable,
        scratch=scratch,
        log_configuration=_LOG_CONFIGURATION if _LOG_CONFIGURATION.is_file() else None,
        submitted=submitted,
        archive=None if java is None else _stored_classes(java),
    )
    errors = JvmErrors()
    before = {key: os.environ.get(key) for key in plan.environment}
    try:
        _log_warnings(refuse_and_describe(plan.conf, settings))
        if SPARK_HOME in plan.environment:
            link_spark_home(_installed_spark(), Path(plan.environment[SPARK_HOME]))
        os.environ.update(plan.environment)
        if java is not None and _stored_classes(java) is None:
            _LOG.info("run 'headrace warm-up' once to make Spark start sooner from then on")
        silence_py4j()
        with DeferredInterrupts(), errors:
            spark = _start(plan.conf, settings)
            silence_accumulators(spark.sparkContext)
    except (PySparkException, Py4JError, ConnectionError) as error:
        # An error of Java's is asked for its text, which the JVM must be there for.
        ending = _JVM_ENDED if _is_of_ended_jvm(error) else _first_line(root_message(error))
        _abandon(scratch, before)
        reason = errors.cause() or ending
        raise SparkStartError(plan.conf["spark.master"], reason) from error
    except BaseException:
        _abandon(scratch, before)
        raise
    session = HostSession(
        spark,
        is_borrowed=False,
        scratch=scratch,
        is_embedded=not given_master(settings, os.environ, submitted),
        given={**plan.conf, **given_by_user(settings)},
        environment_before=before,
        page=WebPage(spark) if plan.has_page else None,
    )
    # Whichever of the two processes ends in order removes the directory, should the other be killed.
    delete_at_jvm_exit(spark.sparkContext, scratch)
    atexit.register(session.stop)
    return session


def _start(conf: Mapping[str, str], settings: Settings) -> SparkSession:
    """Start the JVM, then Spark in it: the running JVM gets secrets by calls, not by its command line."""
    at_launch = _spark_conf(without_private_values(conf))
    getattr(SparkContext, "_ensure_initialized")(conf=at_launch)  # noqa: B009 - starts the JVM unless it runs
    whole = _spark_conf(conf)
    secret_file = settings.get_option(SPARK_SECRET_FILE)
    known = dict(whole.getAll())
    for key, value in {**missing_secret(known, secret_file), **missing_page_key(known)}.items():
        whole.set(key, value)
    return SparkSession.builder.config(conf=whole).getOrCreate()


def _stored_classes(java: JavaRuntime) -> Path | None:
    archive = class_archive(java, user_cache_directory(os.environ))
    return archive if archive.is_file() else None


def _spark_conf(values: Mapping[str, str]) -> SparkConf:
    conf = SparkConf()
    for key, value in values.items():
        conf.set(key, value)
    return conf


def _submitted_configuration() -> dict[str, str]:
    """Return the settings of spark-submit, whose JVM runs already with them; empty for a program started without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    getattr(SparkContext, "_ensure_initialized")()  # noqa: B009 - connects to the JVM of spark-submit
    return dict(SparkConf().getAll())


def _installed_spark() -> Path:
    """Return the folder of the Spark installation that the JVM would start from."""
    return Path(getattr(find_spark_home, "_find_spark_home")())  # noqa: B009 - private, and named here only


def _restore_environment(before: Mapping[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def _abandon(scratch: Path, environment_before: Mapping[str, str | None]) -> None:
    stop_context()
    _restore_environment(environment_before)
    remove_scratch_folder(scratch)


def _is_of_ended_jvm(error: BaseException) -> bool:
    """Return whether a call failed because the JVM has ended; py4j may then also report that a class is missing."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return True
    return not isinstance(error, Py4JJavaError) and has_jvm_ended()


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _log_warnings(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _LOG.warning("%s", warning)


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the program's SparkSession, created with the settings of streaming jobs if there is none yet.

    `settings` are added to those of the command line; `spark.*` keys among them are Spark's own. On Spark Connect this
    is the client's session, which can read and write, but not host jobs.

    Example:
        >>> spark = spark_session()  # doctest: +SKIP
        >>> flights = spark.read.csv("flights.csv", header=True)  # doctest: +SKIP
    """
    given = {**(settings or {}), **default_settings()}
    if is_connect_client():
        builder = SparkSession.builder
        for key, value in given.items():
            if key.startswith("spark."):
                builder = builder.config(key, value)
        return builder.getOrCreate()
    return host_session(Settings(given)).spark
