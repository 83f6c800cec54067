"""The few facts that only Spark's JVM knows, each behind one function; and what its death looks like from here."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext


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
        raise JvmGoneError("its SparkSession was stopped")
    return java_context.sc()


def is_stopped(context: SparkContext) -> bool:
    """Whether `context` was stopped from Python."""
    return getattr(context, "_jsc", None) is None


def active_context() -> SparkContext | None:
    """Return the one SparkContext of this process, if there is one that was not stopped."""
    return getattr(SparkContext, "_active_spark_context", None)


def application_slot_count(context: SparkContext, spark_profile: Any = None) -> int | None:
    """How many tasks can run at once now, or None where executors come on demand.

    `spark_profile` is a profile of PySpark's that all of them have; without one, the application's default.
    """
    conf = context.getConf()
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return None
    scala_context = jvm_context(context)
    if scala_context.isStopped():
        # By somebody in the JVM, such as the master of its cluster.
        raise JvmGoneError("its SparkContext was stopped")
    manager = scala_context.resourceProfileManager()
    if spark_profile is None:
        profile = manager.defaultResourceProfile()
    else:
        profile = getattr(spark_profile, "_java_resource_profile")  # noqa: B009 - private, and named here only
        # Spark counts for profiles that it knows; to be told twice changes nothing.
        manager.addResourceProfile(profile)
    return int(scala_context.maxNumConcurrentTasks(profile))


def registered_executor_count(context: SparkContext) -> int:
    """How many executors have registered, without the driver itself."""
    return int(jvm_context(context).getExecutorMemoryStatus().size()) - 1


def delete_at_jvm_exit(context: SparkContext, directory: Path) -> None:
    """Have the JVM remove `directory` and what is in it when it ends in order, as it does when we are gone."""
    jvm: Any = getattr(context, "_jvm")  # noqa: B009 - private, and named here only
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
        jvm.java.io.File(str(directory))
    )
