"""The driver's JVM: starts and ends it, queries it, recognises its death, and filters its messages.

The JVM is started so that a signal to the program does not end it too early. Its standard
error is passed on, without one line, and recorded while Spark starts. That line is a warning: Spark's launcher adds to
every JVM an incubating module (`--add-modules=jdk.incubator.vector`, for linear algebra), of which Java warns, with no
way to turn the warning off. Leaving the module out would change Spark's behaviour. Tracebacks of py4j and of PySpark's
accumulators are dropped when the JVM is gone.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext

from headrace.core.threads import start_thread
from headrace.spark.options import WORKERS_VARIABLE

_SESSION_STOPPED: Final = "its SparkSession was stopped"
_EXIT_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 1.0
INCUBATOR_WARNING: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"
_STANDARD_ERROR: Final = 2
_REMEMBERED_LINE_COUNT: Final = 200
_LAST_WORDS_TIMEOUT_S: Final = 2.0
_LOG: Final = logging.getLogger(__name__)
_CAUSE: Final = re.compile(r"(?:Exception in thread \"[^\"]*\" |Error: |Caused by: )(?P<cause>.+)")


class JvmGoneError(Exception):
    """The driver's JVM no longer answers, or its SparkContext was stopped."""


@contextmanager
def jvm_calls() -> Generator[None, None, None]:
    """Context that turns a lost connection to the JVM into JvmGoneError; exceptions of Java code pass through."""
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, OSError, EOFError) as error:
        if "Trace:" in str(error):
            # The JVM answered with an error about the call: a bug in Headrace, not the JVM's end.
            raise
        raise JvmGoneError("the JVM of the Spark driver no longer answers") from error


def jvm_context(context: SparkContext) -> Any:
    """Return the Scala SparkContext of `context`, for calls that Python does not offer.

    JvmGoneError if there is none.
    """
    java_context = getattr(context, "_jsc", None)
    if java_context is None:
        raise JvmGoneError(_SESSION_STOPPED)
    return java_context.sc()


def private_field(jvm: Any, class_name: str, name: str) -> Any:
    """Return a private field of a Spark class, by Java reflection; `jvm` is py4j's view."""
    field = jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    field.setAccessible(True)
    return field


def is_stopped(context: SparkContext) -> bool:
    """Return whether `context` was stopped from Python."""
    return getattr(context, "_jsc", None) is None


def active_context() -> SparkContext | None:
    """Return the SparkContext of this process, or None if there is none or it was stopped."""
    return getattr(SparkContext, "_active_spark_context", None)


class ApplicationSlots:
    """Counts the tasks that an application can run at once.

    Its caller asks ten times a second, and reading the configuration takes hundreds of JVM calls: values that
    stay the same while the application runs are fetched once.
    """

    def __init__(self, context: SparkContext, spark_profile: Any = None) -> None:
        """Create a counter; `spark_profile`: the PySpark profile of all tasks; None: the application's default."""
        self._context: Final = context
        grows = context.getConf().get("spark.dynamicAllocation.enabled", "false")
        self._grows_on_demand: Final = str(grows).lower() == "true"
        self._scala_context: Final = jvm_context(context)
        manager = self._scala_context.resourceProfileManager()
        if spark_profile is None:
            self._profile: Any = manager.defaultResourceProfile()
        else:
            self._profile = getattr(spark_profile, "_java_resource_profile")  # noqa: B009 - private, and named here only
            # Spark only counts for profiles that it knows.
            manager.addResourceProfile(self._profile)

    def count(self) -> int | None:
        """Return how many tasks can run now, or None if executors start on demand.

        JvmGoneError after the context's stop.
        """
        if is_stopped(self._context):
            raise JvmGoneError(_SESSION_STOPPED)
        if self._scala_context.isStopped():
            # Code in the JVM stopped it, such as the cluster's master.
            raise JvmGoneError("its SparkContext was stopped")
        if self._grows_on_demand:
            return None
        return int(self._scala_context.maxNumConcurrentTasks(self._profile))


def registered_executor_count(context: SparkContext) -> int:
    """Return the number of executors that have registered, without the driver itself."""
    return int(jvm_context(context).getExecutorMemoryStatus().size()) - 1


def active_job_ids(context: SparkContext) -> frozenset[int]:
    """Return Spark's ids of the running jobs, as far as its listeners have been notified."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - see below
    found = jvm_context(context).statusTracker().getActiveJobIds()
    # As one text: fetching one element costs as much as fetching all.
    return frozenset(map(int, re.findall(r"\d+", str(jvm.java.util.Arrays.toString(found)))))


def delete_at_jvm_exit(context: SparkContext, directory: Path) -> None:
    """Have the JVM delete `directory` with its content on a normal exit, such as after the end of this process."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - private, and named in this file only
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
        jvm.java.io.File(str(directory))
    )


def hide_property(context: SparkContext, key: str) -> None:
    """Keep the values of a job's local property `key` out of Spark's event log.

    Spark redacts application settings that match its `spark.redaction.regex`. It writes local properties unredacted,
    unless a setting has the same name.
    """
    jvm_context(context).conf().set(key, "")


def class_path(context: SparkContext) -> str:
    """Return the class path that the JVM was started with, with each archive listed by name."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - see above
    return str(jvm.java.lang.System.getProperty("java.class.path"))


class DeferredInterrupts:
    """Holds back Ctrl-C and SIGTERM while Spark starts, and keeps Spark from installing its own handlers.

    A JVM whose launch is interrupted half-way is orphaned and stays; and Spark's handler of Ctrl-C would cancel
    TaskManagers before they can stop. The first of either signal takes effect at the end of the block, a second one at
    once if the JVM runs by then, as a context may wait for its cluster for ever. A SIGTERM without a handler ends the
    process as always, and the JVM with it. Outside of the main thread this has no effect.
    """

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}
        self._held: list[int] = []

    def __enter__(self) -> "DeferredInterrupts":
        if threading.current_thread() is threading.main_thread():
            self._hold(signal.SIGINT)
            if callable(signal.getsignal(signal.SIGTERM)):
                self._hold(signal.SIGTERM)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        if signal.SIGTERM in self._held:
            signal.raise_signal(signal.SIGTERM)
        if signal.SIGINT in self._held:
            raise KeyboardInterrupt

    def _hold(self, number: int) -> None:
        self._previous[number] = signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        is_launched = getattr(SparkContext, "_gateway", None) is not None
        if number not in self._held:
            self._held.append(number)
        elif is_launched and number == signal.SIGINT:
            raise KeyboardInterrupt
        elif is_launched:
            self._previous[number](number, frame)


def has_jvm_ended(timeout_s: float = _END_TIMEOUT_S) -> bool:
    """Return whether the JVM that this process started has ended, or ends within a second; used after a failed call."""
    process: subprocess.Popen[bytes] | None = getattr(
        getattr(SparkContext, "_gateway", None), "proc", None
    )
    if process is None:
        return False
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def stop_context() -> None:
    """Stop the context that may have been created, and its JVM; both may be gone already."""
    context: SparkContext | None = getattr(SparkContext, "_active_spark_context", None)
    if context is not None:
        with warnings.catch_warnings():
            # Spark would warn that it cannot stop the JVM: the caller reports its end.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                context.stop()
            except OSError:
                # The context has forgotten its JVM, which ended before it, and now ends what it has in Python.
                context.stop()
    stop_jvm()


def stop_jvm() -> None:
    """End the JVM that this process started, by closing the pipe to its input. The JVM of spark-submit stays."""
    gateway = getattr(SparkContext, "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # The next session of this process starts a new one.
    for name in ("_gateway", "_jvm"):
        setattr(SparkContext, name, None)


def silence_py4j() -> None:
    """Log py4j's reports of a lost connection at DEBUG, through Headrace's logger. Idempotent.

    py4j logs a traceback of each running call to the root logger, and so to standard error, before the call fails; the
    caller then logs one line about the JVM's end. At INFO py4j also reports every connection that it closes, which
    would mix with the program's output if that logs to standard output: only a level that the user sets shows these
    reports.
    """
    root, own = logging.getLogger(), logging.getLogger("py4j")
    if _is_for_others not in root.filters:
        root.addFilter(_is_for_others)
    if own.level == logging.NOTSET:
        own.setLevel(logging.WARNING)


def _is_for_others(record: logging.LogRecord) -> bool:
    if f"{os.sep}py4j{os.sep}" not in record.pathname:
        return True
    _LOG.debug("py4j: %s", record.getMessage(), exc_info=record.exc_info)
    return False


def silence_accumulators(context: SparkContext) -> None:
    """Log the end of the connection for accumulator updates of the JVM at DEBUG, through Headrace's logger.

    PySpark's server would print a traceback when the JVM is gone. The connection exists once a task has ended.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    print_traceback = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if isinstance(sys.exception(), EOFError):
            _LOG.debug("the JVM has closed the connection for accumulator updates", exc_info=True)
        else:
            print_traceback(request, client_address)

    server.handle_error = handle_error


class JvmErrors:
    """Context manager: a JVM that is started inside writes its standard error to a pipe, as long as it lives.

    A thread copies lines to the original standard error; it ends with the last writer.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINE_COUNT)
        self._before = -1
        self._ended = threading.Event()

    def __enter__(self) -> "JvmErrors":
        try:
            self._before = os.dup(_STANDARD_ERROR)
        except OSError:
            # Standard error is closed: there is nothing to pass on.
            return self
        reading, writing = os.pipe()
        os.dup2(writing, _STANDARD_ERROR)
        os.close(writing)
        source, target = os.fdopen(reading, "rb"), os.fdopen(os.dup(self._before), "wb", 0)
        start_thread("headrace-jvm-errors", lambda: self._relay(source, target))
        return self

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            os.dup2(self._before, _STANDARD_ERROR)
            os.close(self._before)

    def cause(self) -> str | None:
        """Return the JVM's own message about its end, or None if it printed none; call this after its end."""
        self._ended.wait(_LAST_WORDS_TIMEOUT_S)
        for line in list(self._lines):
            found = _CAUSE.match(line)
            if found is not None and found.group("cause").startswith("Could not create the Java"):
                # Java has said why on the line before.
                return self._lines[0]
            if found is not None:
                return found.group("cause")
        return None

    def _relay(self, source: BinaryIO, target: BinaryIO) -> None:
        with source, target:
            for line in source:
                if line.strip() == INCUBATOR_WARNING:
                    continue
                self._lines.append(line.decode(errors="replace").rstrip())
                # Where nobody reads any more, the JVM must not notice.
                with contextlib.suppress(OSError):
                    target.write(line)
        self._ended.set()


_ENVIRONMENT_LOCK: Final = threading.Lock()
_OTHER_INTERPRETER: Final = "interpreter"
"""Name of workers with an interpreter of their own: the process from which Spark forks them ends with them."""


@contextlib.contextmanager
def named_workers(context: SparkContext, name: str, python_executable: str = "") -> Generator[None]:
    """Have functions passed to Spark within the block run only in Python workers of this name.

    An empty name: in the common workers. `python_executable`: their interpreter; empty: the application's.
    Within the block `pythonExec` and `environment` of the context differ for each thread of the process.
    """
    python: Any = context
    with _ENVIRONMENT_LOCK:
        if python_executable == python.pythonExec:
            python_executable = ""
        name = name or (python_executable and _OTHER_INTERPRETER)
        if not name:
            yield
            return
        environment, executable = python.environment, python.pythonExec
        # A copy: Spark keeps the value from the moment at which it gets a function.
        python.environment = {**environment, WORKERS_VARIABLE: name}
        python.pythonExec = python_executable or executable
        try:
            yield
        finally:
            python.environment, python.pythonExec = environment, executable
