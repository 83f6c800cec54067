"""Who takes part: each peer with its program, its environment, how much it is given, and what it reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.nexmark.peers.measure import CHECKPOINT_VARIABLE, READS

HEADRACE: Final = "headrace"
DUCKDB: Final = "duckdb"
TOUCHED_FLINK: Final = "touched_flink"
BUSY_CHECKPOINT_MS: Final = 50
FLINK: Final = ("apache-flink==2.3.0",)
PYARROW: Final = "pyarrow==20.0.0"


@dataclass(frozen=True)
class Peer:
    """No `packages`: it runs in our own environment."""

    name: str
    title: str
    module: str
    packages: tuple[str, ...]
    environment: str
    reads: str
    writes: str
    clock: str
    events_max: Mapping[str, int] = field(default_factory=dict[str, int])
    """By query: what a slow one is given at most."""
    repeats_max: int | None = None
    queries: frozenset[str] | None = frozenset(READS)
    """None: every query that there is."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of its process's environment, beside ours."""


_HEADRACE: Final = Peer(
    HEADRACE,
    "Headrace",
    "headrace_spark",
    packages=(),
    environment=".venv",
    reads="Parquet files, the columns of the query",
    writes="nothing (discarding sink)",
    clock="JobMaster: submission to end, deployment included; second job of the session",
    queries=None,
)
_FLINK: Final = Peer(
    "flink",
    "Flink SQL",
    "flink_sql",
    packages=FLINK,
    environment=".venv-pyflink",
    reads="Arrow batches in the memory of its tasks (its wheel reads no Parquet)",
    writes="nothing (`blackhole`)",
    clock="from the moment when all tasks run to the end, deployment left out; second job of the JVM",
)
_PEERS: Final = (
    _HEADRACE,
    replace(
        _HEADRACE,
        name="checkpointing_headrace",
        title=f"Headrace, checkpoints every {BUSY_CHECKPOINT_MS} ms",
        reads="as Headrace",
        clock="as Headrace",
        variables={CHECKPOINT_VARIABLE: str(BUSY_CHECKPOINT_MS)},
    ),
    Peer(
        DUCKDB,
        "DuckDB",
        "duckdb_sql",
        packages=("duckdb==2.0.0",),
        environment=".venv-duckdb",
        reads="Parquet files",
        writes="a table in memory",
        clock="the statement; second one of the process. Batch: no checkpoints, no event time",
        queries=None,
    ),
    Peer(
        "polars",
        "polars",
        "polars_frames",
        packages=("polars==2.1.0",),
        environment=".venv-polars",
        reads="Parquet files",
        writes="a frame in memory",
        clock="`collect`, streaming engine; second one of the process. Batch: no checkpoints, no event time",
    ),
    _FLINK,
    replace(
        _FLINK,
        name=TOUCHED_FLINK,
        title="Flink SQL, heap touched",
        reads="as Flink SQL",
        clock="as Flink SQL; its JVM has touched all of its 8 GB before, and collects garbage in parallel",
        variables={"JVM_ARGS": "-Xms8g -Xmx8g -XX:+AlwaysPreTouch -XX:+UseParallelGC"},
    ),
    Peer(
        "pyflink",
        "PyFlink DataStream",
        "pyflink_datastream",
        packages=FLINK,
        environment=".venv-pyflink",
        reads="as Flink SQL",
        writes="nothing (a discarding sink of the JVM)",
        clock="as Flink SQL",
        # In q5 its windows take each bid five times: with starting and the smaller run two minutes for so few.
        events_max=dict.fromkeys(READS, 200_000) | {"q5": 10_000},
        repeats_max=1,
    ),
    Peer(
        "spark",
        "Spark Structured Streaming",
        "spark_streaming",
        packages=(),
        environment=".venv",
        reads="Parquet files, four per micro-batch",
        writes="nothing (`noop`)",
        clock="start of the streaming query to its end; second one of the session",
        repeats_max=1,
    ),
    Peer(
        "bytewax",
        "bytewax",
        "bytewax_flow",
        packages=("bytewax==0.21.1", PYARROW),
        environment=".venv-bytewax",
        reads="Parquet files by pyarrow, a row group an item",
        writes="nothing (an empty sink)",
        clock="the flow, from the first row group read. No checkpoints",
        events_max={"q3": 2_000_000, "q5": 500_000, "q8": 2_000_000, "q11": 1_000_000},
        repeats_max=1,
    ),
    Peer(
        "pathway",
        "pathway",
        "pathway_tables",
        packages=("pathway==0.33.0",),
        environment=".venv-pathway",
        reads="CSV files with the columns of the query (it reads no Parquet)",
        writes="nothing (`pw.io.null`)",
        clock="`pw.run`, static mode; second one of the process. No checkpoints, no event time",
        events_max=dict.fromkeys(READS, 1_000_000) | {"q11": 100_000},
        repeats_max=1,
    ),
)
PEERS: Final = {peer.name: peer for peer in _PEERS}
