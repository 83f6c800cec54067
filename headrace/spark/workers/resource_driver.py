"""SparkResourceDriver: runs each TaskManager as a Spark job with a single task.

One thread owns the lifecycles and talks to the JVM; the ResourceManager's requests reach it through a queue, so its
main thread never waits for Spark. Source: Flink ResourceManagerDriver; runtime on Spark: docs/architecture.
"""

import logging
import queue
import threading
from collections import defaultdict
from typing import Final

from headrace.cluster.resource_manager.driver import WorkerListener
from headrace.core.clock import Clock
from headrace.core.errors import HostError
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile, sum_of
from headrace.core.threads import run_in_thread, start_thread
from headrace.spark.session.jvm import JvmGoneError
from headrace.spark.session.spark_errors import unusable_interpreter, unusable_worker
from headrace.spark.workers.worker_jobs import ExecutorState, WorkerJob, WorkerJobs
from headrace.spark.workers.worker_lifecycle import (
    CancelJob,
    ClockRead,
    ExecutorDecommissioned,
    ExecutorLost,
    JobEnded,
    ReleaseRequested,
    ReportDecommissioned,
    ReportStarted,
    ReportTerminated,
    SubmitJob,
    TaskActive,
    WorkerAction,
    WorkerEvent,
    WorkerLifecycles,
    WorkerRequested,
)

_LOG: Final = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 0.1
"""Interval at which ended jobs are looked for: the maximum delay until a loss that Spark reports is noticed."""

EXECUTORS_INTERVAL_MS: Final = 500.0
"""Interval at which Spark is asked whether the executors of workers stay, if Spark announces their ends."""

LOST_EXECUTORS_INTERVAL_MS: Final = 2_000.0
"""Interval of the same check if Spark does not announce ends: users of a worker notice its end themselves."""

KEPT_FREE_COUNT: Final = 1
"""Slots that TaskManagers never take, so that Spark's own jobs can run."""

_CLOSE_TIMEOUT_S: Final = 30.0


class SparkHostLostError(HostError):
    """The driver's JVM is gone, and with it every executor."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the Spark application is gone: {reason}")


class _Close:
    """Queued by `close`: release everything and end the thread once nothing is left."""


class SparkResourceDriver:
    """The ResourceManager's driver for Spark: starts and ends workers."""

    def __init__(self, jobs: WorkerJobs, clock: Clock, *, stop_grace_ms: float) -> None:
        self._jobs = jobs
        self._clock = clock
        self._lifecycles = WorkerLifecycles(stop_grace_ms)
        self._queue: queue.SimpleQueue[WorkerEvent | _Close] = queue.SimpleQueue()
        self._running: dict[ResourceId, WorkerJob] = {}
        # Environments of workers whose interpreter is not the application's.
        self._interpreters: dict[ResourceId, str] = {}
        self._listener: WorkerListener | None = None
        self._is_closing = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._slot_count: int | None = jobs.slot_count()
        self._executors_due_ms = 0.0
        # Those without a place that need more than cores and memory. Added to by the caller, taken from by the thread.
        self._waiting: dict[ResourceId, ResourceProfile] = {}

    @property
    def max_worker_count(self) -> int | None:
        """Return the application's slots less the spare one, or None if executors start on demand."""
        return None if self._slot_count is None else max(0, self._slot_count - KEPT_FREE_COUNT)

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        return self._jobs.refusal_of(profile, usual)

    def describe_shortage(self) -> str:
        slot_count = self._slot_count
        wanted = sum_of(tuple(self._waiting.values())).external_resources
        if wanted:
            named = " and ".join(f"{amount} {name}" for name, amount in wanted)
            return (
                f"the workers need {named}, which Spark's executors do not have free, and may never have; the job "
                f"continues as soon as they do: give the application more executors with them, end other jobs, or "
                f"lower the parallelism"
            )
        if slot_count is None:
            return (
                "Spark has not given this application an executor for the workers yet; the job continues as soon as "
                "it does: check that the cluster has free cores and memory"
            )
        if not slot_count:
            return (
                "Spark has no executor for this application; the job continues as soon as it has one: check that "
                "the cluster's workers are up, and have free cores and memory"
            )
        return (
            f"Spark's executors have {slot_count} slot(s), of which {KEPT_FREE_COUNT} is kept free for Spark's own "
            "jobs; the job continues as soon as there are more: give the application more executors or cores, end "
            "other "
            "jobs, or lower the parallelism"
        )

    @property
    def failure(self) -> BaseException | None:
        """Return the error that ended the thread for Spark before it was closed; then no worker starts any more."""
        return self._failure

    def check(self) -> None:
        """Raise SparkHostLostError if no worker could be started. Call it before `initialize`; may block."""
        try:
            self._slot_count = self._jobs.slot_count()
        except JvmGoneError as error:
            raise SparkHostLostError(
                f"{error}, while this driver waited to lead; start it again (a supervisor does)"
            ) from error

    def initialize(self, listener: WorkerListener) -> None:
        """Start the thread that calls Spark."""
        assert self._listener is None, "initialized twice"
        self._listener = listener
        start_thread("headrace-spark-workers", self._run)

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        """Request a worker; returns at once."""
        if profile.external_resources:
            self._waiting[worker_id] = profile
        self._queue.put(WorkerRequested(worker_id, profile))

    def release_worker(self, worker_id: ResourceId) -> None:
        """Release a worker; returns at once."""
        self._queue.put(ReleaseRequested(worker_id))

    async def close(self) -> None:
        """Release every worker and wait until the last Spark job has ended."""
        self._queue.put(_Close())
        if self._listener is None:
            return
        # Not by a thread of the default pool: while the interpreter exits there is none.
        await run_in_thread(
            "headrace-spark-workers-end", lambda: self._ended.wait(_CLOSE_TIMEOUT_S)
        )

    # The rest runs on the driver's own thread.

    def _run(self) -> None:
        try:
            while not (self._is_closing and not self._lifecycles.live_worker_ids):
                self._step()
        except JvmGoneError as error:
            self._host_failed(SparkHostLostError(str(error)))
        except Exception as error:
            _LOG.exception("the thread that calls Spark has failed")
            self._host_failed(error)
        finally:
            self._ended.set()

    def _step(self) -> None:
        try:
            self._take(self._queue.get(timeout=POLL_INTERVAL_S))
        except queue.Empty:
            self._watch()

    def _take(self, received: WorkerEvent | _Close) -> None:
        if isinstance(received, _Close):
            self._is_closing = True
            for worker_id in self._lifecycles.live_worker_ids:
                self._handle(ReleaseRequested(worker_id))
        elif self._is_closing and isinstance(received, WorkerRequested):
            self._report().worker_terminated(received.worker_id, "the host is closing")
        else:
            self._handle(received)

    def _watch(self) -> None:
        for worker_id in self._jobs.ended(self._running):
            self._ended_with(worker_id, self._running.pop(worker_id).error())
        for worker_id, job in list(self._running.items()):
            if job.is_active():
                self._handle(TaskActive(worker_id))
        self._watch_executors()
        self._handle(ClockRead())
        self._slot_count = self._jobs.slot_count()

    def _watch_executors(self) -> None:
        """Notice executors that Spark takes away, or has lost and would replace together with their workers."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._executors_due_ms:
            return
        self._executors_due_ms = now_ms + (
            EXECUTORS_INTERVAL_MS if self._jobs.announces_ends else LOST_EXECUTORS_INTERVAL_MS
        )
        workers: defaultdict[str, list[ResourceId]] = defaultdict(list)
        for worker_id, job in self._running.items():
            executor_id = job.executor_id()
            if executor_id is not None:
                workers[executor_id].append(worker_id)
        states = self._jobs.executor_states(workers) if workers else {}
        for executor_id, state in states.items():
            for worker_id in workers[executor_id]:
                if state is ExecutorState.DECOMMISSIONED:
                    cause = f"Spark is removing its executor {executor_id}"
                    self._handle(ExecutorDecommissioned(worker_id, cause))
                elif state is ExecutorState.LOST:
                    self._handle(ExecutorLost(worker_id, f"Spark lost its executor {executor_id}"))

    def _ended_with(self, worker_id: ResourceId, error: str | None) -> None:
        interpreter = self._interpreters.pop(worker_id, "")
        # A worker that was given up, with its job or for lack of an executor, does not predict the next one's end.
        if error is not None and not self._lifecycles.is_given_up(worker_id):
            failure = (
                unusable_interpreter(error, interpreter) if interpreter else unusable_worker(error)
            )
            if failure is not None:
                # A retry would only make the user wait for the same error.
                self._report().interpreter_failed(
                    interpreter, str(failure), recoverable=failure.recoverable
                )
        self._handle(JobEnded(worker_id, error))

    def _handle(self, event: WorkerEvent) -> None:
        for action in self._lifecycles.handle(event, self._clock.monotonic_ms()):
            self._perform(action)

    def _perform(self, action: WorkerAction) -> None:
        match action:
            case SubmitJob(worker_id, profile):
                self._submit(worker_id, profile)
            case CancelJob(worker_id):
                self._jobs.cancel(worker_id)
            case ReportStarted(worker_id):
                self._waiting.pop(worker_id, None)
                self._report().worker_started(worker_id)
            case ReportDecommissioned(worker_id, cause):
                self._report().worker_decommissioned(worker_id, cause)
            case ReportTerminated(worker_id, diagnostics):
                self._waiting.pop(worker_id, None)
                _LOG.info("worker %s is gone: %s", worker_id, diagnostics.split("\n", 1)[0])
                self._report().worker_terminated(worker_id, diagnostics)

    def _submit(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        try:
            self._running[worker_id] = self._jobs.submit(worker_id, profile)
            if profile.python_executable:
                self._interpreters[worker_id] = profile.python_executable
        except JvmGoneError:
            raise
        except Exception as error:
            # Refused profiles land here; the ResourceManager decides what is next.
            self._handle(JobEnded(worker_id, f"Spark refused its job: {error}"))

    def _host_failed(self, error: BaseException) -> None:
        report = self._report()
        if not self._is_closing:
            self._failure = error
            report.host_failed(error)
        for worker_id in self._lifecycles.live_worker_ids:
            report.worker_terminated(worker_id, str(error))

    def _report(self) -> WorkerListener:
        assert self._listener is not None
        return self._listener
