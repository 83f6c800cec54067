"""ShownQueries: shows TaskManagers and jobs as queries on the SQL tab of Spark's page, with accumulators as metrics.

    a TaskManager        one node; shown while it runs, within five seconds of its start
    a job that ended     a node for each vertex, below it those that it read from; shown with its end

Spark receives the accumulators of a Python task at the task's end, which for a TaskManager is its cluster's end, and
between stages it counts packets of records. Accumulators of a query may also be posted by the driver, as
Spark does for figures that only the driver knows: the page shows them, and the event log keeps them.
Source: Spark, SQLAppStatusListener.scala, SQLMetrics.scala and SQLExecution.scala in sql/core.
"""

import logging
import queue
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from headrace.core.clock import Clock
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobVertexId, ResourceId
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import Thread, start_thread
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobDetails, VertexDetails
from headrace.graph.job_plan import JobPlan
from headrace.metrics.cluster_names import (
    CPU_TIME,
    HEAP_USED,
    TASK_RECORDS_IN,
    TASK_RECORDS_OUT,
    TASKS_RUNNING,
)
from headrace.metrics.names import NUM_RECORDS_IN, NUM_RECORDS_OUT
from headrace.spark.job_descriptions import clipped, plan_description
from headrace.spark.session.jvm import JvmGoneError, jvm_calls, jvm_context, private_field

_LOG: Final = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 5
"""Interval at which TaskManagers are read; a TaskManager that ends before the first read has no query."""

LAST_LOOKS_MS: Final = 1_000.0
"""Time limit for reading TaskManagers once more before their queries end."""

_LOOKS_PER_AGE: Final = 60
"""A TaskManager is read again after this part of its age, as Spark keeps all posted values while it runs."""

_LOOK_INTERVAL_MS: Final = 1_000 * LOOK_INTERVAL_S
_NS_PER_MS: Final = 1_000_000
_BYTES_PER_MIB: Final = 1 << 20
_CLOSE_TIMEOUT_S: Final = 5.0
_NAME_MAX: Final = 100

RECORDS_RECEIVED: Final = "records received"
RECORDS_SENT: Final = "records sent"
PROCESSOR_TIME: Final = "processor time in ms"
TASKS: Final = "running tasks"
MEMORY: Final = "resident memory in MiB"

_READINGS: Final = frozenset({TASKS, MEMORY})
"""Metrics for which Spark shows minimum, median and maximum, zeros left out; for all others it shows the sum."""

_TASK_MANAGER: Final = (RECORDS_RECEIVED, RECORDS_SENT, PROCESSOR_TIME, TASKS, MEMORY)
_VERTEX: Final = (RECORDS_RECEIVED, RECORDS_SENT)

Figures = Mapping[str, Mapping[str, int]]
"""Values by accumulator name, by the key of the node."""


@dataclass(frozen=True)
class QueryNode:
    """A node of a query's plan, with the names of its accumulators; `children` are the nodes that it reads from."""

    key: str
    name: str
    description: str
    accumulators: tuple[str, ...] = ()
    children: tuple["QueryNode", ...] = ()


class QueryLog(Protocol):
    """Posts queries to Spark (`SparkQueryLog`), or to a list in a test. Times are milliseconds since the epoch."""

    def begin(self, root: QueryNode, begun_ms: int) -> Any:
        """Post the start of a query without figures; return the handle for the other methods."""
        ...

    def add(self, query: Any, figures: Figures) -> None:
        """Post figures of a query that has not ended."""
        ...

    def end(self, query: Any, ended_ms: int, error: str = "") -> None:
        """Post the end of a query; `error` says why it failed."""
        ...


@dataclass
class _Shown:
    """A TaskManager that is shown. Times are monotonic, in ms; `totals` are the posted values of sums."""

    query: Any
    since_ms: float
    due_ms: float
    totals: dict[str, int] = field(default_factory=dict[str, int])
    is_missing: bool = False


class ShownQueries:
    """Shows the TaskManagers and jobs of one cluster, on a thread of its own, until it is closed.

    `read()` returns the ids of registered TaskManagers; `metrics_of(id)` returns the metrics of one by their full
    names. Both wait for the cluster, and raise HeadraceError or TimeoutError if it does not answer.
    """

    def __init__(
        self,
        log: QueryLog,
        read: Callable[[], tuple[ResourceId, ...]],
        metrics_of: Callable[[ResourceId], Mapping[str, float]],
        description_of: Callable[[ResourceId], str],
        clock: Clock,
    ) -> None:
        self._log: Final = log
        self._read: Final = read
        self._metrics_of: Final = metrics_of
        self._description_of: Final = description_of
        self._clock: Final = clock
        self._shown: dict[ResourceId, _Shown] = {}
        # The next jobs to show; None: the end.
        self._ended_jobs: Final[queue.SimpleQueue[EndedJob | None]] = queue.SimpleQueue()
        self._is_closing = self._is_over = False
        self._due_ms: float = clock.monotonic_ms() + _LOOK_INTERVAL_MS
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, which reads TaskManagers every `LOOK_INTERVAL_S`, the first time after that interval."""
        self._thread = start_thread("headrace-shown-queries", self._run)

    def job_ended(self, job: EndedJob) -> None:
        """Show a job that has ended. Any thread; returns at once."""
        if not self._is_over:
            self._ended_jobs.put(job)

    def close(self) -> None:
        """Show the remaining jobs and end all queries, if the session still runs. Idempotent."""
        self._is_closing = True
        self._ended_jobs.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def look(self) -> None:
        """Post the metrics of TaskManagers that are due, and the start and end of TaskManagers that came and went.

        A ResourceManager that has just started knows no TaskManagers: one counts as gone only if two reads missed it.
        """
        there = self._read()
        for worker_id in self._shown.keys() - set(there):
            missed = self._shown[worker_id]
            if missed.is_missing:
                del self._shown[worker_id]
                self._log.end(missed.query, self._clock.now_ms())
            missed.is_missing = True
        for worker_id in there:
            if self._is_closing:
                return
            now_ms = self._clock.monotonic_ms()
            shown = self._shown.get(worker_id)
            if shown is None:
                description = self._description_of(worker_id)
                root = QueryNode(str(worker_id), "TaskManager", description, _TASK_MANAGER)
                query = self._log.begin(root, self._clock.now_ms())
                shown = self._shown[worker_id] = _Shown(query, now_ms, now_ms)
            shown.is_missing = False
            if shown.due_ms <= now_ms:
                shown.due_ms = now_ms + (now_ms - shown.since_ms) / _LOOKS_PER_AGE
                self._post(worker_id, shown)

    def end(self) -> None:
        """Post the last metrics, within `LAST_LOOKS_MS`, and the end of all queries."""
        until_ms = self._clock.monotonic_ms() + LAST_LOOKS_MS
        for worker_id, shown in self._shown.items():
            if self._clock.monotonic_ms() < until_ms:
                self._post(worker_id, shown)
            self._log.end(shown.query, self._clock.now_ms())
        self._shown.clear()

    def show_job(self, details: JobDetails, plan: JobPlan) -> None:
        """Post the query of a job that has ended."""
        times, failure = details.status_timestamps_ms, details.failure
        # Of a job that failed before it had a JobMaster not all is known.
        now_ms = self._clock.now_ms()
        query = self._log.begin(_tree_of(plan), min(times.values(), default=now_ms))
        self._log.add(query, {str(one.vertex_id): _records(one) for one in details.vertices})
        error = "" if failure is None else failure.text
        if details.status is JobStatus.CANCELED:
            error = "cancelled"
        self._log.end(query, times.get(details.status.name, now_ms), error)

    def _post(self, worker_id: ResourceId, shown: _Shown) -> None:
        try:
            metrics = self._metrics_of(worker_id)
        except (HeadraceError, TimeoutError) as error:
            # It is gone, or too busy to answer: the next look tells.
            _LOG.debug("no metrics of TaskManager %s: %s", worker_id, error)
            return
        readings, totals = _of_task_manager(metrics)
        new = {name: total - shown.totals.get(name, 0) for name, total in totals.items()}
        shown.totals = totals
        self._log.add(shown.query, {str(worker_id): {**new, **readings}})

    def _run(self) -> None:
        try:
            while self._take():
                pass
            self.end()
        except JvmGoneError:
            _LOG.debug("Spark no longer shows TaskManagers and jobs", exc_info=True)
        except Exception as error:
            # Among others: py4j takes a class that another version of Spark lacks for a package, which nobody can call.
            _LOG.warning(
                "Spark's SQL tab no longer shows TaskManagers and jobs, which continue: %s", error
            )
        finally:
            self._is_over = True

    def _take(self) -> bool:
        """Show the next job; return whether there may be more."""
        left_ms = self._due_ms - self._clock.monotonic_ms()
        try:
            job = self._ended_jobs.get(timeout=max(0.0, left_ms / 1_000))
        except queue.Empty:
            # Without a leader there is no answer; the next look asks again.
            with suppress(HeadraceError, TimeoutError):
                self.look()
            self._due_ms = self._clock.monotonic_ms() + _LOOK_INTERVAL_MS
            return True
        if job is None:
            return False
        try:
            self.show_job(job.details, job.plan)
        except JvmGoneError:
            raise
        except Exception as error:
            _LOG.warning(
                "job '%s' could not be shown on Spark's SQL tab: %s", job.details.name, error
            )
        return True


def _of_task_manager(metrics: Mapping[str, float]) -> tuple[dict[str, int], dict[str, int]]:
    """Return a TaskManager's readings, and its totals since its start."""
    readings = {
        TASKS: int(metrics.get(TASKS_RUNNING.name, 0)),
        MEMORY: int(metrics.get(HEAP_USED.name, 0)) // _BYTES_PER_MIB,
    }
    totals = {
        RECORDS_RECEIVED: int(metrics.get(TASK_RECORDS_IN.name, 0)),
        RECORDS_SENT: int(metrics.get(TASK_RECORDS_OUT.name, 0)),
        PROCESSOR_TIME: int(metrics.get(CPU_TIME.name, 0)) // _NS_PER_MS,
    }
    return readings, totals


def _records(vertex: VertexDetails) -> dict[str, int]:
    return {
        RECORDS_RECEIVED: int(vertex.metric(NUM_RECORDS_IN) or 0),
        RECORDS_SENT: int(vertex.metric(NUM_RECORDS_OUT) or 0),
    }


def _tree_of(plan: JobPlan) -> QueryNode:
    """Return the vertices of a job as a tree below their readers.

    Spark draws a tree: a vertex with several readers once.
    """
    vertices = {node.vertex_id: node for node in plan.nodes}
    read = {each.vertex_id for node in plan.nodes for each in node.inputs}
    drawn: set[JobVertexId] = set()

    def below(vertex_id: JobVertexId) -> QueryNode:
        node = vertices[vertex_id]
        name = clipped(node.name, _NAME_MAX)
        if vertex_id in drawn:
            return QueryNode("", f"see {name}", node.name)
        drawn.add(vertex_id)
        shown = f"{node.name}, {node.parallelism} subtask(s)"
        children = tuple(below(each.vertex_id) for each in node.inputs)
        return QueryNode(str(vertex_id), name, shown, _VERTEX, children)

    ends = tuple(below(vertex_id) for vertex_id in vertices if vertex_id not in read)
    return QueryNode("", f"{plan.job_type} job", plan_description(plan), children=ends)


@dataclass(frozen=True)
class _Query:
    """A Spark query by its number, with its accumulators by node key and name."""

    execution_id: int
    accumulators: Mapping[tuple[str, str], Any]


class SparkQueryLog:
    """Posts queries to the listeners of one session: its pages, its status API and its event log."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Final = spark

    def begin(self, root: QueryNode, begun_ms: int) -> _Query:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            # The listener of the SQL tab exists from here on.
            getattr(self._spark, "_jsparkSession").sharedState().statusStore()  # noqa: B009 - private
            query = _Query(self._next_execution_id(), accumulators := {})
            plan = _plan_info(context, jvm, root, accumulators)
            # Scala's empty collections, which py4j cannot name.
            no_map, nothing = plan.metadata(), jvm.scala.Option.empty()
            begun = jvm.org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart(
                query.execution_id,
                nothing,
                root.description,
                "",
                _text(root),
                plan,
                begun_ms,
                no_map,
                no_map.keySet(),
                nothing,
                nothing,
            )
            context.listenerBus().post(begun)
        return query

    def add(self, query: _Query, figures: Figures) -> None:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            posted: list[Any] = []
            for key, numbers in figures.items():
                for name, number in numbers.items():
                    # A sum that does not grow is as it was.
                    if name in _READINGS or number:
                        accumulator = query.accumulators[key, name]
                        accumulator.set(float(number) if name in _READINGS else number)
                        posted.append(accumulator)
            jvm.org.apache.spark.sql.execution.metric.SQLMetrics.postDriverMetricUpdates(
                context, str(query.execution_id), _sequence(jvm, posted)
            )

    def end(self, query: _Query, ended_ms: int, error: str = "") -> None:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            nothing = jvm.scala.Option.empty()
            reason = jvm.scala.Option.apply(error) if error else nothing
            ended = jvm.org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd(
                query.execution_id, ended_ms, reason, nothing
            )
            context.listenerBus().post(ended)

    def _context_and_jvm(self) -> tuple[Any, Any]:
        """Return the Scala context and py4j's view of the JVM. JvmGoneError once the session was stopped."""
        context = jvm_context(self._spark.sparkContext)
        return context, getattr(self._spark.sparkContext, "_jvm")  # noqa: B009 - private

    def _next_execution_id(self) -> int:
        """Return the number that Spark would give to the next query."""
        gateway: Any = getattr(self._spark.sparkContext, "_gateway")  # noqa: B009 - private
        executions = "org.apache.spark.sql.execution.SQLExecution$"
        # By its method: of what it counts with py4j would make a number.
        next_id = gateway.jvm.java.lang.Class.forName(executions).getDeclaredMethod(
            "nextExecutionId", gateway.new_array(gateway.jvm.java.lang.Class, 0)
        )
        next_id.setAccessible(True)
        itself = private_field(gateway.jvm, executions, "MODULE$").get(None)
        return int(next_id.invoke(itself, gateway.new_array(gateway.jvm.java.lang.Object, 0)))


def _plan_info(
    context: Any, jvm: Any, node: QueryNode, accumulators: dict[tuple[str, str], Any]
) -> Any:
    """Return a node in the form for Spark's page, and add its accumulators to the others."""
    execution = jvm.org.apache.spark.sql.execution
    infos: list[Any] = []
    for name in node.accumulators:
        metrics = execution.metric.SQLMetrics
        make = metrics.createAverageMetric if name in _READINGS else metrics.createMetric
        accumulator = accumulators[node.key, name] = make(context, name)
        info = execution.metric.SQLMetricInfo(name, accumulator.id(), accumulator.metricType())
        infos.append(info)
    children = [_plan_info(context, jvm, child, accumulators) for child in node.children]
    return execution.SparkPlanInfo(
        node.name,
        node.description,
        _sequence(jvm, children),
        execution.SparkPlanInfo.EMPTY().metadata(),
        _sequence(jvm, infos),
    )


def _text(node: QueryNode, depth: int = 0) -> str:
    """Return the plan as text, one line for each node."""
    lines = [f"{'  ' * depth}{node.description}"]
    return "\n".join([*lines, *(_text(child, depth + 1) for child in node.children)])


def _sequence(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)
