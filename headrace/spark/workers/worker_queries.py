"""WorkerQueries: each TaskManager is a query on the SQL tab of Spark's page, whose accumulators show what it does.

Spark learns the accumulators of a Python task when the task ends, which for a TaskManager is when its cluster does.
Those of a query may also be posted by the driver, as Spark does for figures that only the driver knows. So the driver
asks each TaskManager for its metrics, and posts them: the page shows them while it runs, and the event log keeps them.
Source: Spark, SQLAppStatusListener.scala, SQLMetrics.scala and SQLExecution.scala in sql/core.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.core.clock import Clock
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.core.threads import Thread, start_thread
from headrace.metrics.cluster_names import (
    CPU_TIME,
    HEAP_USED,
    TASK_RECORDS_IN,
    TASK_RECORDS_OUT,
    TASKS_RUNNING,
)
from headrace.spark.session.jvm import JvmGoneError, jvm_calls, jvm_context, private_field

_LOG: Final = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 5.0
"""Interval at which TaskManagers are looked for; one that ends before the first look is no query."""

LAST_LOOKS_MS: Final = 1_000.0
"""Time for which TaskManagers are asked once more before their queries end."""

_LOOKS_PER_AGE: Final = 60
"""A TaskManager is asked again after this part of its age: Spark keeps all that was posted for as long as it runs."""

_NS_PER_MS: Final = 1_000_000
_BYTES_PER_MIB: Final = 1 << 20
_CLOSE_TIMEOUT_S: Final = 5.0

RECORDS_RECEIVED: Final = "records received"
RECORDS_SENT: Final = "records sent"
PROCESSOR_TIME: Final = "processor time in ms"
TASKS: Final = "running tasks"
MEMORY: Final = "resident memory in MiB"

_SUMS: Final = (RECORDS_RECEIVED, RECORDS_SENT, PROCESSOR_TIME)
"""Totals, of which what came since the last look is posted: Spark adds up what is posted."""

_READINGS: Final = (TASKS, MEMORY)
"""Of these Spark shows the least, the median and the most."""


class QueryLog(Protocol):
    """Where queries are posted: `SparkQueryLog`, or a list in a test."""

    def begin(self, description: str) -> Any:
        """Post the start of a query with no figures yet; return what the other methods know it by."""
        ...

    def add(self, query: Any, figures: Mapping[str, int]) -> None:
        """Post figures of a query that runs."""
        ...

    def end(self, query: Any) -> None:
        """Post that it has ended."""
        ...


@dataclass
class _Shown:
    """A TaskManager that is shown. Times are monotonic, in ms; `totals` is what has been posted of sums."""

    query: Any
    since_ms: float
    due_ms: float
    totals: dict[str, int] = field(default_factory=dict[str, int])


class WorkerQueries:
    """Shows the TaskManagers of one cluster, on a thread of its own, until it is closed.

    `read()` returns the ids of those that are registered; `metrics_of(id)` the metrics of one by their full names.
    Both wait for the cluster, and raise HeadraceError or TimeoutError where it does not answer.
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
        self._closed: Final = threading.Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Look every `LOOK_INTERVAL_S`, for the first time after as long."""
        self._thread = start_thread("headrace-worker-queries", self._run)

    def close(self) -> None:
        """End the queries that are shown, while there is a session. Idempotent."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def look(self) -> None:
        """Post the metrics of those that are due, the start of those that came and the end of those that went."""
        there = self._read()
        for worker_id in self._shown.keys() - set(there):
            self._log.end(self._shown.pop(worker_id).query)
        for worker_id in there:
            now_ms = self._clock.monotonic_ms()
            shown = self._shown.get(worker_id)
            if shown is None:
                query = self._log.begin(self._description_of(worker_id))
                shown = self._shown[worker_id] = _Shown(query, now_ms, now_ms)
            if shown.due_ms <= now_ms:
                shown.due_ms = now_ms + (now_ms - shown.since_ms) / _LOOKS_PER_AGE
                self._post(worker_id, shown)

    def end(self) -> None:
        """Post the last metrics, as far as `LAST_LOOKS_MS` allow it, and the end of all."""
        until_ms = self._clock.monotonic_ms() + LAST_LOOKS_MS
        for worker_id, shown in self._shown.items():
            if self._clock.monotonic_ms() < until_ms:
                self._post(worker_id, shown)
            self._log.end(shown.query)
        self._shown.clear()

    def _post(self, worker_id: ResourceId, shown: _Shown) -> None:
        try:
            figures = _figures(self._metrics_of(worker_id))
        except (HeadraceError, TimeoutError) as error:
            # It is gone, or too busy to answer: the next look tells.
            _LOG.debug("no metrics of TaskManager %s: %s", worker_id, error)
            return
        new = {name: figures[name] - shown.totals.get(name, 0) for name in _SUMS}
        shown.totals = {name: figures[name] for name in _SUMS}
        self._log.add(shown.query, {**new, **{name: figures[name] for name in _READINGS}})

    def _run(self) -> None:
        try:
            while not self._closed.wait(LOOK_INTERVAL_S):
                # Without a leader there is no answer; the next look asks again.
                with suppress(HeadraceError, TimeoutError):
                    self.look()
            self.end()
        except JvmGoneError:
            _LOG.debug("TaskManagers are shown by Spark no more", exc_info=True)
        # py4j takes a class that another version of Spark lacks for a package, which cannot be called.
        except (Py4JError, TypeError) as error:
            _LOG.info("Spark's SQL tab does not show what TaskManagers do: %s", error)


def _figures(metrics: Mapping[str, float]) -> dict[str, int]:
    return {
        RECORDS_RECEIVED: int(metrics.get(TASK_RECORDS_IN.name, 0)),
        RECORDS_SENT: int(metrics.get(TASK_RECORDS_OUT.name, 0)),
        PROCESSOR_TIME: int(metrics.get(CPU_TIME.name, 0)) // _NS_PER_MS,
        TASKS: int(metrics.get(TASKS_RUNNING.name, 0)),
        MEMORY: int(metrics.get(HEAP_USED.name, 0)) // _BYTES_PER_MIB,
    }


@dataclass(frozen=True)
class _Query:
    """A query of Spark's by its number, with its accumulators by their names."""

    execution_id: int
    accumulators: Mapping[str, Any]


class SparkQueryLog:
    """Posts queries to the listeners of one session: its pages, its status API and its event log."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Final = spark

    def begin(self, description: str) -> _Query:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            # The listener of the SQL tab is there from here on.
            getattr(self._spark, "_jsparkSession").sharedState().statusStore()  # noqa: B009 - private
            execution = jvm.org.apache.spark.sql.execution
            metrics = execution.metric
            accumulators = {name: metrics.SQLMetrics.createMetric(context, name) for name in _SUMS}
            accumulators |= {
                name: metrics.SQLMetrics.createAverageMetric(context, name) for name in _READINGS
            }
            infos = [
                metrics.SQLMetricInfo(name, one.id(), one.metricType())
                for name, one in accumulators.items()
            ]
            # Scala's empty collections, which py4j cannot name.
            empty, nothing = execution.SparkPlanInfo.EMPTY(), jvm.scala.Option.empty()
            no_map = empty.metadata()
            plan = execution.SparkPlanInfo(
                "TaskManager", description, empty.children(), no_map, _sequence(jvm, infos)
            )
            query = _Query(self._next_execution_id(), accumulators)
            begun = execution.ui.SparkListenerSQLExecutionStart(
                query.execution_id,
                nothing,
                description,
                "",
                description,
                plan,
                jvm.java.lang.System.currentTimeMillis(),
                no_map,
                no_map.keySet(),
                nothing,
                nothing,
            )
            context.listenerBus().post(begun)
        return query

    def add(self, query: _Query, figures: Mapping[str, int]) -> None:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            posted: list[Any] = []
            for name, figure in figures.items():
                if name in _SUMS and not figure:
                    continue
                accumulator = query.accumulators[name]
                accumulator.set(figure if name in _SUMS else float(figure))
                posted.append(accumulator)
            jvm.org.apache.spark.sql.execution.metric.SQLMetrics.postDriverMetricUpdates(
                context, str(query.execution_id), _sequence(jvm, posted)
            )

    def end(self, query: _Query) -> None:
        with jvm_calls():
            context, jvm = self._context_and_jvm()
            nothing = jvm.scala.Option.empty()
            ended = jvm.org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd(
                query.execution_id, jvm.java.lang.System.currentTimeMillis(), nothing, nothing
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


def _sequence(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)
