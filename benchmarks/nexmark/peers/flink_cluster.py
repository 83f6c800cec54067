"""A Flink in the JVM of PyFlink's gateway: its tables of events, its cluster, and when a job of it ran.

Flink's wheel holds no Parquet reader. Of what it does hold, the cheapest input is the columnar one behind
`from_pandas`: Arrow record batches that lie in the memory of each source task. They are made of the Parquet files, only
the columns that a query reads, before the clock starts.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.peers.measure import (
    CHECKPOINT_VARIABLE,
    READS,
    TEXTS,
    Figures,
    Measured,
)

PARALLELISM: Final = 2
WATERMARK_DELAY_SECONDS: Final = 4
BATCH_ROWS: Final = 65_536
POLL_SECONDS: Final = 0.01
SETTINGS: Final = {
    "parallelism.default": str(PARALLELISM),
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.storage": "filesystem",
    "restart-strategy.type": "none",
    "rest.bind-port": "0",
    "rest.address": "localhost",
    "taskmanager.memory.managed.size": "1g",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
}
# The gateway's JVM holds client, cluster and input; the input is in it several times.
os.environ.setdefault("JVM_ARGS", "-Xmx8g")


class FlinkCluster:
    """A MiniCluster with one TaskManager of two slots, which outlives its jobs; a context."""

    def __init__(self) -> None:
        from pyflink.common import Configuration  # pyright: ignore[reportMissingImports]
        from pyflink.java_gateway import get_gateway  # pyright: ignore[reportMissingImports]

        self.configuration: Any = Configuration()
        for name, value in SETTINGS.items():
            self.configuration.set_string(name, value)
        self._scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        checkpoints = Path(self._scratch.name).as_uri()
        self.configuration.set_string("execution.checkpointing.dir", checkpoints)
        interval_ms = os.environ.get(CHECKPOINT_VARIABLE, "1000")
        self.configuration.set_string("execution.checkpointing.interval", f"{interval_ms} ms")
        self.jvm: Any = get_gateway().jvm
        builder = self.jvm.org.apache.flink.runtime.minicluster.MiniClusterConfiguration.Builder()
        builder.setConfiguration(self.configuration._j_configuration)
        builder.setNumTaskManagers(1).setNumSlotsPerTaskManager(PARALLELISM)
        self._cluster: Any = self.jvm.org.apache.flink.runtime.minicluster.MiniCluster(
            builder.build()
        )

    def __enter__(self) -> "FlinkCluster":
        self._cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        self._scratch.cleanup()

    def table_environment(self) -> tuple[Any, Any]:
        """Return fresh environments, one for streams and one for tables, to build a job with."""
        from pyflink.datastream import (  # pyright: ignore[reportMissingImports]
            StreamExecutionEnvironment,
        )
        from pyflink.table import StreamTableEnvironment  # pyright: ignore[reportMissingImports]

        env = StreamExecutionEnvironment.get_execution_environment(self.configuration)
        env.set_parallelism(PARALLELISM)
        return env, StreamTableEnvironment.create(env)

    def create_tables(self, tables: Any, query: str, events: Path, event_time: str) -> None:
        """Make a table of each kind that a query reads.

        `event_time` names the column of type TIMESTAMP_LTZ(3) or TIMESTAMP(3): `date_time` itself, or one more.
        """
        for kind, columns in READS[query].items():
            if "date_time" in columns:
                columns = tuple(dict.fromkeys((*columns, event_time)))
            self.create_table(tables, kind, events / kind, columns, event_time)

    def run(self, job_graph: Any) -> Figures:
        """Run a job to its end; count from the moment in which all its tasks run.

        Bringing the job to its tasks is not counted, as the input goes with it.
        """
        job = job_graph.getJobID()
        with Measured() as measured:
            self._cluster.submitJob(job_graph).get()
            while not self._is_running(job):
                time.sleep(POLL_SECONDS)
            cpu_started = measured.cpu_seconds_so_far()
            result = self._cluster.requestJobResult(job).get()
            cpu_seconds = measured.cpu_seconds_so_far() - cpu_started
        # Raises where the job has failed.
        result.toJobExecutionResult(self.jvm.java.lang.ClassLoader.getSystemClassLoader())
        graph = self._cluster.getArchivedExecutionGraph(job).get()
        finished = graph.getStatusTimestamp(self.jvm.org.apache.flink.api.common.JobStatus.FINISHED)
        running = max(self._running_times(graph))
        taken = graph.getCheckpointStatsSnapshot().getCounts().getNumberOfCompletedCheckpoints()
        return measured.figures(finished - running, cpu_seconds, taken)

    def run_batch(self, job_graph: Any) -> float:
        """Run a job in BATCH mode to its end; return the seconds from its first running task on."""
        job = job_graph.getJobID()
        self._cluster.submitJob(job_graph).get()
        result = self._cluster.requestJobResult(job).get()
        # Raises where the job has failed.
        result.toJobExecutionResult(self.jvm.java.lang.ClassLoader.getSystemClassLoader())
        graph = self._cluster.getArchivedExecutionGraph(job).get()
        finished = graph.getStatusTimestamp(self.jvm.org.apache.flink.api.common.JobStatus.FINISHED)
        return (finished - min(self._running_times(graph))) / 1000

    def _is_running(self, job: Any) -> bool:
        graph = self._cluster.getExecutionGraph(job).get()
        return graph.getState().isTerminalState() or min(self._running_times(graph), default=0) > 0

    def _running_times(self, graph: Any) -> list[int]:
        running = self.jvm.org.apache.flink.runtime.execution.ExecutionState.RUNNING
        vertices = graph.getAllExecutionVertices().iterator()
        times: list[int] = []
        while vertices.hasNext():
            times.append(vertices.next().getCurrentExecutionAttempt().getStateTimestamp(running))
        return times

    def create_table(
        self, tables: Any, kind: str, files: Path, columns: Sequence[str], event_time: str
    ) -> None:
        """Make a table of some columns of Parquet files; it has an event time where `event_time` is one of them."""
        row = self._row_type(columns, event_time)
        with tempfile.NamedTemporaryFile(suffix=".arrows") as file:
            write_batches(files, columns, event_time, Path(file.name))
            arrow = self.jvm.org.apache.flink.table.runtime.arrow.ArrowUtils
            descriptor = arrow.createArrowTableSourceDesc(row, file.name)
        schema = self.jvm.org.apache.flink.table.api.Schema.newBuilder().fromRowDataType(row)
        if event_time in columns:
            delay = f"{event_time} - INTERVAL '{WATERMARK_DELAY_SECONDS}' SECOND"
            schema = schema.watermark(event_time, delay)
        descriptor = descriptor.toBuilder().schema(schema.build()).build()
        tables._j_tenv.createTemporaryTable(kind, descriptor)

    def _row_type(self, columns: Sequence[str], event_time: str) -> Any:
        from pyflink.table import DataTypes  # pyright: ignore[reportMissingImports]
        from pyflink.table.types import _to_java_data_type  # pyright: ignore[reportMissingImports]

        def type_of(name: str) -> Any:
            if name == event_time:
                # Windows of SQL are cheapest over times without a zone; streams take instants.
                return DataTypes.TIMESTAMP(3) if name == "date_time" else DataTypes.TIMESTAMP_LTZ(3)
            return DataTypes.STRING() if name in TEXTS else DataTypes.BIGINT()

        fields = [DataTypes.FIELD(name, type_of(name).not_null()) for name in columns]
        return _to_java_data_type(DataTypes.ROW(fields).not_null())


def write_batches(files: Path, columns: Sequence[str], event_time: str, file: Path) -> None:
    """Write the rows of Parquet files, in their order, as an Arrow stream; the event time as a timestamp."""
    stored = [name for name in columns if name == "date_time" or name != event_time]
    rows = pa.concat_tables(
        pq.read_table(part, columns=stored) for part in sorted(files.glob("*.parquet"))
    )
    arrays = [
        rows.column("date_time").cast(pa.timestamp("ms"))
        if name == event_time
        else rows.column(name).cast(pa.string() if name in TEXTS else pa.int64())
        for name in columns
    ]
    made = pa.table(arrays, names=list(columns)).combine_chunks()
    with pa.ipc.new_stream(file, made.schema) as stream:
        stream.write_table(made, max_chunksize=BATCH_ROWS)
