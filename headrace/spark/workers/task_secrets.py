"""What Spark's tasks are told apart from their closures: the cluster's secret, its key, and settings with passwords.

A closure is a block that Spark hands to whoever asks for it, and that it writes to disks. Local properties of a job
travel in the message that starts a task, from the driver to the executor that runs it, over Spark's authenticated
connection, and from there to the Python worker alone.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from pyspark import TaskContext
from pyspark.core.context import SparkContext

from headrace.core.security.tls import TlsIdentity
from headrace.spark.session.authentication import SECRETS_OF_TASKS
from headrace.spark.session.jvm import hide_property


@dataclass(frozen=True)
class TaskSecrets:
    """`settings` are those of TaskManagers, empty for other tasks."""

    secret: bytes = field(repr=False)
    tls: TlsIdentity | None
    settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@contextmanager
def handed_to_tasks(context: SparkContext, secrets: TaskSecrets) -> Generator[None, None, None]:
    """Hand `secrets` to the tasks of every job that this thread submits within the block."""
    hide_property(context, SECRETS_OF_TASKS)
    context.setLocalProperty(SECRETS_OF_TASKS, msgspec.json.encode(secrets).decode())
    try:
        yield
    finally:
        context.setLocalProperty(SECRETS_OF_TASKS, None)  # pyright: ignore[reportArgumentType]


def received_secrets() -> TaskSecrets:
    """Return what was handed to the Spark task that this is called in."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(SECRETS_OF_TASKS)
    assert text is not None, "its job was submitted without secrets"
    return msgspec.json.decode(text, type=TaskSecrets)
