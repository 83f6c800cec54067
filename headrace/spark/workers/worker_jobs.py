"""One single-task Spark job per TaskManager: submitted, watched and cancelled one at a time.

Everything here may block for milliseconds (it talks to the JVM) and is called from one thread only, because job group
and tags belong to the thread that submits.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.core.context import SparkContext
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

from headrace.core.ids import ResourceId
from headrace.gateways.messages import ResourceProfile
from headrace.spark.session.authentication import TaskSecrets, handed_to_tasks
from headrace.spark.session.jvm import ApplicationSlots, jvm_calls, jvm_context
from headrace.spark.session.spark_errors import root_message

WorkerBody = Callable[[Iterable[int]], Iterable[str]]
"""Body of the task: takes the (undrained) input of its partition, returns the job's result."""

WORKER_TAG: Final = "headrace-taskmanager"
"""Tag of every job that hosts a TaskManager."""

ANY_PROFILE: Final = ResourceProfile()

# Spark's Python API has no asynchronous action; the JVM's has. One attribute leads there.
_JAVA_RDD: Final = "_jrdd"


class WorkerJob(Protocol):
    """A job that was submitted."""

    def is_active(self) -> bool:
        """Return whether its task runs on an executor."""
        ...

    def is_done(self) -> bool:
        """Return whether it returned, raised or was cancelled."""
        ...

    def error(self) -> str | None:
        """Return the error that ended the job, or None if it returned; only once it is done."""
        ...


class WorkerJobs(Protocol):
    """Starts and cancels jobs of workers for the resource driver; raises `jvm.JvmGoneError` once the host is gone."""

    def submit(self, worker_id: ResourceId, profile: ResourceProfile) -> WorkerJob:
        """Start the worker's job; any other exception means that it could not be started."""
        ...

    def cancel(self, worker_id: ResourceId) -> None:
        """Cancel the worker's job group; no effect where it has ended."""
        ...

    def slot_count(self) -> int | None:
        """Return the number of tasks the application can run at once now, or None if it grows on demand."""
        ...


class SparkWorkerJobs:
    """Jobs of a real SparkContext. `body_of` makes the task's function for a worker.

    `counted` is the profile that workers will have: room is counted in tasks of it. Where the host does not honour
    profiles, every worker takes one of its slots. `secrets` are handed to each of them.
    """

    def __init__(
        self,
        context: SparkContext,
        body_of: Callable[[ResourceId], WorkerBody],
        *,
        honours_profiles: bool,
        secrets: TaskSecrets,
        counted: ResourceProfile = ANY_PROFILE,
    ) -> None:
        self._context = context
        self._body_of = body_of
        self._honours_profiles = honours_profiles
        self._counted = counted
        self._secrets = secrets
        self._profiles: dict[ResourceProfile, Any] = {}
        self._slots: ApplicationSlots | None = None

    def submit(self, worker_id: ResourceId, profile: ResourceProfile) -> WorkerJob:
        """Start the worker's job."""
        rdd = self._context.parallelize([0], 1).mapPartitions(self._body_of(worker_id))
        spark_profile = self._spark_profile(profile)
        if spark_profile is not None:
            rdd = rdd.withResources(spark_profile)
        group = job_group(worker_id)
        with jvm_calls(), handed_to_tasks(self._context, self._secrets):
            self._context.setJobGroup(group, f"TaskManager {worker_id}", interruptOnCancel=True)
            self._context.addJobTag(WORKER_TAG)
            try:
                return start_job(self._context, rdd)
            finally:
                # The next job of this thread must not be taken for this worker's.
                self._context.removeJobTag(WORKER_TAG)
                for key in ("spark.jobGroup.id", "spark.job.description"):
                    self._context.setLocalProperty(key, None)  # pyright: ignore[reportArgumentType]

    def cancel(self, worker_id: ResourceId) -> None:
        """Cancel the worker's job group."""
        with jvm_calls():
            self._context.cancelJobGroup(job_group(worker_id))

    def slot_count(self) -> int | None:
        """Return the number of tasks the application can run at once now, or None if it grows on demand."""
        with jvm_calls():
            if self._slots is None:
                self._slots = ApplicationSlots(self._context, self._spark_profile(self._counted))
            return self._slots.count()

    def _spark_profile(self, profile: ResourceProfile) -> Any:
        cpus = ceil(profile.cpu_cores)
        if not self._honours_profiles or cpus <= 1:
            return None
        if profile not in self._profiles:
            # One Spark profile per worker profile: Spark never forgets one.
            requests = TaskResourceRequests().cpus(cpus)
            self._profiles[profile] = ResourceProfileBuilder().require(requests).build
        return self._profiles[profile]


def job_group(worker_id: ResourceId) -> str:
    """Name of the job group of a worker."""
    return f"headrace-{worker_id}"


def start_job(context: SparkContext, rdd: Any) -> WorkerJob:
    """Submit `rdd` as one job without waiting for it.

    Through the JVM's asynchronous action where the way there is open, else by a thread that waits for it.
    """
    java_rdd = getattr(rdd, _JAVA_RDD, None)
    if java_rdd is not None and hasattr(java_rdd, "collectAsync"):
        return AsynchronousJob(context, java_rdd.collectAsync())
    return ThreadedJob(rdd)


@dataclass
class AsynchronousJob:
    """A job behind a future of the JVM."""

    context: SparkContext
    future: Any
    _was_active: bool = False

    def is_active(self) -> bool:
        """Return whether its task runs, or ran, on an executor."""
        if not self._was_active:
            with jvm_calls():
                self._was_active = self._has_active_task()
        return self._was_active

    def _has_active_task(self) -> bool:
        tracker = jvm_context(self.context).statusTracker()
        for job_id in self.future.jobIds():
            info = tracker.getJobInfo(job_id)
            if not info.isDefined():
                continue
            for stage_id in info.get().stageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage.isDefined() and stage.get().numActiveTasks() > 0:
                    return True
        return False

    def is_done(self) -> bool:
        """Return whether it has ended."""
        with jvm_calls():
            return bool(self.future.isDone())

    def error(self) -> str | None:
        """Return the error that ended the job, or None if it returned."""
        with jvm_calls():
            try:
                self.future.get()
            except Py4JJavaError as error:
                return root_message(error)
        return None


class ThreadedJob:
    """A job that a thread of the driver waits for; the thread carries the submitter's job group and tags."""

    def __init__(self, rdd: Any) -> None:
        self._rdd = rdd
        self._error: str | None = None
        self._done = threading.Event()
        # Spark's own thread class: a plain one would lose the job group.
        InheritableThread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._rdd.collect()
        except Exception as error:
            self._error = root_message(error)
        finally:
            self._done.set()

    def is_active(self) -> bool:
        """Not known this way: taken for active, so that a stop gets its grace."""
        return True

    def is_done(self) -> bool:
        """Return whether it has ended."""
        return self._done.is_set()

    def error(self) -> str | None:
        """Return the error that ended the job, or None if it returned."""
        return self._error
