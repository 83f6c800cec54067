"""Submits, watches and cancels the Spark jobs of TaskManagers; each job has a single task.

Everything here may block for milliseconds (it talks to the JVM) and is called from one thread only, because job group
and tags belong to the thread that submits.
"""

import enum
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.core.context import SparkContext

from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS, OWN_INTERPRETER
from headrace.core.errors import HostError
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import JOB_ENVIRONMENT, ResourceProfile
from headrace.spark.session.authentication import TaskSecrets, handed_to_tasks
from headrace.spark.session.jvm import (
    ApplicationSlots,
    active_job_ids,
    jvm_calls,
    jvm_context,
    named_workers,
)
from headrace.spark.session.spark_errors import environment_error_in, root_message
from headrace.spark.workers.job_environment import JobEnvironment
from headrace.spark.workers.worker_sizes import WorkerSizes

_LOG: Final = logging.getLogger(__name__)
WorkerBody = Callable[[Iterable[int]], Iterable[str]]
"""Body of the task: takes the unread input of its partition, returns the job's result."""

WORKER_TAG: Final = "headrace-taskmanager"
"""Tag of every job that hosts a TaskManager."""

ANY_PROFILE: Final = ResourceProfile()

# Spark's Python API has no asynchronous action; the JVM's has. One attribute leads there.
_JAVA_RDD: Final = "_jrdd"


class ExecutorState(enum.Enum):
    """States of an executor in Spark's scheduler. A decommissioned executor gets no task, and ends."""

    ALIVE = "ALIVE"
    DECOMMISSIONED = "DECOMMISSIONED"
    LOST = "LOST"


class WorkerJob(Protocol):
    """A Spark job that was submitted."""

    @property
    def ids(self) -> frozenset[int]:
        """Return Spark's ids of the job; empty if they are unknown."""
        ...

    def is_active(self) -> bool:
        """Return whether its task runs on an executor."""
        ...

    def executor_id(self) -> str | None:
        """Return the executor on which its task was started first, or None if it is unknown."""
        ...

    def is_done(self) -> bool:
        """Return whether the job returned, raised an error or was cancelled."""
        ...

    def error(self) -> str | None:
        """Return the error that ended the job, or None if it returned normally; only after its end."""
        ...


class WorkerJobs(Protocol):
    """Starts and cancels jobs of workers for the resource driver; raises `jvm.JvmGoneError` if the host is gone."""

    def submit(self, worker_id: ResourceId, profile: ResourceProfile) -> WorkerJob:
        """Start the worker's job; any other exception means that it could not be started."""
        ...

    def cancel(self, worker_id: ResourceId) -> None:
        """Cancel the worker's job group; no effect if it has ended."""
        ...

    def ended(self, jobs: Mapping[ResourceId, WorkerJob]) -> list[ResourceId]:
        """Return the workers in `jobs` whose job has ended."""
        ...

    def slot_count(self) -> int | None:
        """Return the number of tasks the application can run at once now, or None if it grows on demand."""
        ...

    @property
    def announces_ends(self) -> bool:
        """Return whether Spark announces the end of an executor; else executors are only reported as lost."""
        ...

    def executor_states(self, executor_ids: Iterable[str]) -> dict[str, ExecutorState]:
        """Return the states of executors that have run workers."""
        ...

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why no worker can have this size, as ResourceManagerDriver does. Any thread, without waiting."""
        ...


class SparkWorkerJobs:
    """Jobs of a real SparkContext. `body_of` returns the task's function for a worker, in the environment of its job.

    `counted` is the profile of workers of the usual size: free slots are counted in tasks of this profile. `sizes`: the
    other possible sizes; if the host does not support profiles, every worker takes one slot. `secrets` are handed to
    each worker. `description_of` returns a worker's description on Spark's web page, in its status API and its event
    log. `environments`: those that jobs bring, by the names in profiles; entries may be added later.
    """

    def __init__(
        self,
        context: SparkContext,
        body_of: Callable[[ResourceId, JobEnvironment | None], WorkerBody],
        *,
        sizes: WorkerSizes,
        secrets: TaskSecrets,
        counted: ResourceProfile = ANY_PROFILE,
        description_of: Callable[[ResourceId], str] = lambda worker_id: f"TaskManager {worker_id}",
        environments: Mapping[str, JobEnvironment] = MappingProxyType({}),
    ) -> None:
        self._context = context
        self._body_of = body_of
        self._sizes = sizes
        self._counted = counted
        self._secrets = secrets
        self._description_of = description_of
        self._environments = environments
        self._turn = 0
        self._slots: ApplicationSlots | None = None
        self._cores: ApplicationSlots | None = None
        decommissions = context.getConf().get("spark.decommission.enabled", "false")
        self._announces_ends: bool = str(decommissions).lower() == "true"

    def submit(self, worker_id: ResourceId, profile: ResourceProfile) -> WorkerJob:
        """Start the worker's job. HostError if the job that brings its environment has ended."""
        interpreter, profile = profile.python_executable, profile.with_interpreter("")
        is_brought = interpreter.startswith(JOB_ENVIRONMENT)
        environment = self._environments.get(interpreter)
        if is_brought and environment is None:
            raise HostError(f"the job that brings '{interpreter}' has ended")
        executable = interpreter if environment is None else environment.executable
        body = self._body_of(worker_id, environment)
        rdd = self._context.parallelize([0], 1).mapPartitions(body)
        if profile.is_unspecified:
            profile = self._counted
        spark_profile = self._sizes.spark_profile_of(profile)
        if spark_profile is not None:
            rdd = rdd.withResources(spark_profile)
        group = job_group(worker_id)
        secrets = self._secrets
        if profile != self._counted:
            own = {**secrets.settings, **self._sizes.settings_of(profile)}
            secrets = replace(secrets, settings=own)
        if interpreter:
            # One slot, as the ResourceManager requests one such worker per slot.
            own = {OWN_INTERPRETER.key: interpreter, NUMBER_OF_TASK_SLOTS.key: "1"}
            secrets = replace(secrets, settings={**secrets.settings, **own})
        with jvm_calls(), handed_to_tasks(self._context, secrets):
            self._context.setJobGroup(
                group, self._description_of(worker_id), interruptOnCancel=True
            )
            self._context.addJobTag(WORKER_TAG)
            try:
                with named_workers(self._context, "", executable):
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

    def ended(self, jobs: Mapping[ResourceId, WorkerJob]) -> list[ResourceId]:
        """Return the workers in `jobs` whose job has ended.

        Called ten times a second: Spark is asked once for all its running jobs, and then only about the others. Spark
        learns of an end a moment later; and as its listeners may miss an end when overloaded, one of the jobs
        is asked itself each time, in turn.
        """
        if not jobs:
            return []
        with jvm_calls():
            running = active_job_ids(self._context)
        self._turn = (self._turn + 1) % len(jobs)
        return [
            worker_id
            for index, (worker_id, job) in enumerate(jobs.items())
            if (index == self._turn or not job.ids or not job.ids <= running) and job.is_done()
        ]

    def warm_up(self, executor_count: int) -> None:
        """Have executors run Python once, so that their first workers start sooner; any thread."""
        try:
            with jvm_calls():
                numbers = self._context.parallelize(range(executor_count), executor_count)
                numbers.mapPartitions(list).count()
        except Exception as error:
            _LOG.info(
                "executors could not run Python beforehand, so the first worker starts later: %s",
                error,
            )

    def slot_count(self) -> int | None:
        """Return the number of tasks the application can run at once now, or None if it grows on demand."""
        with jvm_calls():
            if self._slots is None:
                spark_profile = self._sizes.spark_profile_of(self._counted)
                self._slots = ApplicationSlots(self._context, spark_profile)
                if spark_profile is not None and self._counted.external_resources:
                    self._cores = ApplicationSlots(self._context)
            count = self._slots.count()
            cores = None if self._cores is None else self._cores.count()
            if count is None or cores is None:
                return count
            # If GPUs run out before cores, Spark's own tasks have room next to all workers.
            return count + (cores > count * max(1, ceil(self._counted.cpu_cores)))

    @property
    def announces_ends(self) -> bool:
        return self._announces_ends

    def executor_states(self, executor_ids: Iterable[str]) -> dict[str, ExecutorState]:
        if self._sizes.kind.is_single_process:
            # Its one executor is the driver.
            return dict.fromkeys(executor_ids, ExecutorState.ALIVE)
        asked = set(executor_ids)
        with jvm_calls():
            scala_context = jvm_context(self._context)
            # As one text: fetching one element costs as much as fetching all.
            there = asked.intersection(scala_context.getExecutorIds().mkString(" ").split())
            scheduler = scala_context.taskScheduler()
            leaving: set[str] = set()
            if not scheduler.executorsPendingDecommission().isEmpty():
                # Only the scheduler itself may read more of it, as others do not hold its lock.
                state_of = scheduler.getExecutorDecommissionState
                leaving.update(one for one in there if state_of(one).isDefined())
        states = dict.fromkeys(asked, ExecutorState.LOST)
        states |= dict.fromkeys(there, ExecutorState.ALIVE)
        return states | dict.fromkeys(leaving, ExecutorState.DECOMMISSIONED)

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        return self._sizes.refusal_of(profile, usual)


def job_group(worker_id: ResourceId) -> str:
    """Return the name of a worker's job group."""
    return f"headrace-{worker_id}"


def start_job(context: SparkContext, rdd: Any) -> WorkerJob:
    """Submit `rdd` as one job without waiting for it.

    Uses the JVM's asynchronous action if it is accessible, else a thread that waits for the job.
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
    _executor_id: str | None = None
    _ids: frozenset[int] = frozenset()

    @property
    def ids(self) -> frozenset[int]:
        return self._ids

    def executor_id(self) -> str | None:
        if self._executor_id is None and self._was_active:
            with jvm_calls():
                self._executor_id = self._first_executor()
        return self._executor_id

    def _first_executor(self) -> str | None:
        """Return the first executor, from the store of Spark's pages, which exists without pages and lags a moment."""
        scala_context = jvm_context(self.context)
        tracker, store = scala_context.statusTracker(), scala_context.statusStore()
        for job_id in self._ids:
            info = tracker.getJobInfo(job_id)
            for stage_id in info.get().stageIds() if info.isDefined() else ():
                tasks = store.taskList(stage_id, 0, 1)
                if tasks.size():
                    return str(tasks.apply(0).executorId())
        return None

    def is_active(self) -> bool:
        """Return whether its task runs, or ran, on an executor."""
        if not self._was_active:
            with jvm_calls():
                self._was_active = self._has_active_task()
        return self._was_active

    def _has_active_task(self) -> bool:
        tracker = jvm_context(self.context).statusTracker()
        self._ids = self._ids or frozenset(self.future.jobIds())
        for job_id in self._ids:
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
                return environment_error_in(b"".join(self.future.get()))
            except Py4JJavaError as error:
                return root_message(error)


class ThreadedJob:
    """A job that a thread of the driver waits for; the thread has the submitter's job group and tags."""

    def __init__(self, rdd: Any) -> None:
        self._rdd = rdd
        self._error: str | None = None
        self._done = threading.Event()
        # Spark's own thread class: a plain one would lose the job group.
        InheritableThread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._error = environment_error_in("".join(self._rdd.collect()).encode())
        except Exception as error:
            self._error = root_message(error)
        finally:
            self._done.set()

    @property
    def ids(self) -> frozenset[int]:
        """Return no ids: they are unknown."""
        return frozenset()

    def is_active(self) -> bool:
        """Return True, as it is unknown, so that a stop gets its grace period."""
        return True

    def executor_id(self) -> str | None:
        """Return None: it is unknown."""
        return None

    def is_done(self) -> bool:
        """Return whether it has ended."""
        return self._done.is_set()

    def error(self) -> str | None:
        """Return the error that ended the job, or None if it returned."""
        return self._error
