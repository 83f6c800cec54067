"""The few facts that only Spark's JVM knows, each behind one function; and what its death looks like from here."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext

_SESSION_STOPPED: Final = "its SparkSession was stopped"


class JvmGoneError(Exception):
    """The driver's JVM does not answer any more, or the SparkContext in it was stopped."""


@contextmanager
def jvm_calls() -> Generator[None, None, None]:
    """Turn a lost connection to the JVM into JvmGoneError; exceptions thrown by Java code pass."""
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, OSError, EOFError) as error:
        if "Trace:" in str(error):
            # The JVM answered, with a complaint about the call: our mistake, not its end.
            raise
        raise JvmGoneError("the JVM of the Spark driver does not answer any more") from error


def jvm_context(context: SparkContext) -> Any:
    """Return the Scala SparkContext behind `context`, for what Python does not offer; JvmGoneError without one."""
    java_context = getattr(context, "_jsc", None)
    if java_context is None:
        raise JvmGoneError(_SESSION_STOPPED)
    return java_context.sc()


def is_stopped(context: SparkContext) -> bool:
    """Whether `context` was stopped from Python."""
    return getattr(context, "_jsc", None) is None


def active_context() -> SparkContext | None:
    """Return the one SparkContext of this process, if there is one that was not stopped."""
    return getattr(SparkContext, "_active_spark_context", None)


class ApplicationSlots:
    """How many tasks an application can run at once.

    Whoever looks after workers asks ten times a second, and one look at the configuration takes hundreds of calls of
    the JVM: what stays as it is for as long as the application runs is fetched once.
    """

    def __init__(self, context: SparkContext, spark_profile: Any = None) -> None:
        """`spark_profile`: a profile of PySpark's that all tasks have; without one, the application's default."""
        self._context: Final = context
        grows = context.getConf().get("spark.dynamicAllocation.enabled", "false")
        self._grows_on_demand: Final = str(grows).lower() == "true"
        self._scala_context: Final = jvm_context(context)
        manager = self._scala_context.resourceProfileManager()
        if spark_profile is None:
            self._profile: Any = manager.defaultResourceProfile()
        else:
            self._profile = getattr(spark_profile, "_java_resource_profile")  # noqa: B009 - private, and named here only
            # Spark counts for profiles that it knows.
            manager.addResourceProfile(self._profile)

    def count(self) -> int | None:
        """Return how many can run now, or None where executors come on demand. JvmGoneError once it was stopped."""
        if is_stopped(self._context):
            raise JvmGoneError(_SESSION_STOPPED)
        if self._scala_context.isStopped():
            # By somebody in the JVM, such as the master of its cluster.
            raise JvmGoneError("its SparkContext was stopped")
        if self._grows_on_demand:
            return None
        return int(self._scala_context.maxNumConcurrentTasks(self._profile))


def registered_executor_count(context: SparkContext) -> int:
    """How many executors have registered, without the driver itself."""
    return int(jvm_context(context).getExecutorMemoryStatus().size()) - 1


def delete_at_jvm_exit(context: SparkContext, directory: Path) -> None:
    """Have the JVM remove `directory` and what is in it when it ends in order, as it does when we are gone."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - private, and named in this file only
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
        jvm.java.io.File(str(directory))
    )


def hide_property(context: SparkContext, key: str) -> None:
    """Keep the values that jobs have for the local property `key` out of Spark's event log.

    Spark redacts there what its `spark.redaction.regex` finds among the application's settings. Local properties it
    writes as they are, unless a setting has the same name.
    """
    jvm_context(context).conf().set(key, "")


def class_path(context: SparkContext) -> str:
    """The class path that the JVM was started with, every archive of it by name."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - see above
    return str(jvm.java.lang.System.getProperty("java.class.path"))
