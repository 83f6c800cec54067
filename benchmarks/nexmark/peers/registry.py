"""Who takes part: each peer with its program, its environment, how much it is given, and what it reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.nexmark.peers.measure import CHECKPOINT_VARIABLE, READS

HEADRACE: Final = "headrace"
DUCKDB: Final = "duckdb"
TOUCHED_FLINK: Final = "touched_flink"
CHECKPOINT_MS: Final = 25
SELDOM_CHECKPOINT_MS: Final = 1000
FLINK_CHECKPOINT_MS: Final = 500
FLINK_SHORT_CHECKPOINT_MS: Final = 100
FLINK_SHORT: Final = ("q1", "q2")
"""Queries that Flink answers before it has taken ten checkpoints of every `FLINK_CHECKPOINT_MS`."""
_COMMITS: Final = "exactly-once checkpoints"
FLINK: Final = ("apache-flink==2.3.0",)
_BATCH: Final = "nothing (batch: all rows at once, no event time)"
PYARROW: Final = "pyarrow==20.0.0"


@dataclass(frozen=True)
class Peer:
    """No `packages`: it runs in our own environment. `keeps`: what it could go on from after a failure."""

    name: str
    title: str
    module: str
    packages: tuple[str, ...]
    environment: str
    keeps: str
    reads: str
    writes: str
    clock: str
    events_max: Mapping[str, int] = field(default_factory=dict[str, int])
    """By query: what a slow one is given at most."""
    warm_up_max: int = 1_000_000
    """What its first run of each process, whose results are compared, is given at most."""
    queries: frozenset[str] | None = frozenset(READS)
    """None: every query that there is."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of its process's environment, beside ours."""
    checkpoint_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    """By query: the interval of checkpoints where it is not the one of `variables`."""

    def variables_of(self, query: str) -> dict[str, str]:
        """Return what the environment of its process has beside ours when it answers a query."""
        own = self.checkpoint_ms.get(query)
        return dict(self.variables) | ({} if own is None else {CHECKPOINT_VARIABLE: str(own)})

    @property
    def takes_checkpoints(self) -> bool:
        """Whether it could go on from a checkpoint after a failure."""
        return self.keeps.startswith(_COMMITS)


_HEADRACE: Final = Peer(
    HEADRACE,
    "Headrace",
    "headrace_spark",
    packages=(),
    environment=".venv",
    keeps=f"{_COMMITS} every {CHECKPOINT_MS} ms",
    reads="Parquet files, the columns of the query",
    writes="nothing (discarding sink)",
    clock="JobMaster: submission to end, deployment included; second job of the session",
    queries=None,
    variables={CHECKPOINT_VARIABLE: str(CHECKPOINT_MS)},
)
_FLINK: Final = Peer(
    "flink",
    "Flink SQL",
    "flink_sql",
    packages=FLINK,
    environment=".venv-pyflink",
    keeps=f"{_COMMITS} every {FLINK_CHECKPOINT_MS} ms ({', '.join(FLINK_SHORT)}: every "
    f"{FLINK_SHORT_CHECKPOINT_MS} ms)",
    reads="Arrow batches in the memory of its tasks (its wheel reads no Parquet)",
    writes="nothing (`blackhole`)",
    clock="from the moment when all tasks run to the end, deployment left out; second job of the JVM",
    # More do not fit into its memory beside the copies that its source makes.
    events_max=dict.fromkeys(READS, 10_000_000),
    variables={CHECKPOINT_VARIABLE: str(FLINK_CHECKPOINT_MS)},
    checkpoint_ms=dict.fromkeys(FLINK_SHORT, FLINK_SHORT_CHECKPOINT_MS),
)
_PEERS: Final = (
    _HEADRACE,
    replace(
        _HEADRACE,
        name="seldom_headrace",
        title="Headrace, checkpoints every second",
        keeps=f"{_COMMITS} every second",
        reads="as Headrace",
        clock="as Headrace",
        variables={CHECKPOINT_VARIABLE: str(SELDOM_CHECKPOINT_MS)},
    ),
    Peer(
        DUCKDB,
        "DuckDB",
        "duckdb_sql",
        packages=("duckdb==2.0.0",),
        environment=".venv-duckdb",
        keeps=_BATCH,
        reads="Parquet files",
        writes="a table in memory",
        clock="the statement; second one of the process",
        queries=None,
    ),
    Peer(
        "polars",
        "polars",
        "polars_frames",
        packages=("polars==2.1.0",),
        environment=".venv-polars",
        keeps=_BATCH,
        reads="Parquet files",
        writes="a frame in memory",
        clock="`collect`, streaming engine; second one of the process",
    ),
    _FLINK,
    replace(
        _FLINK,
        name=TOUCHED_FLINK,
        title="Flink SQL, heap touched",
        reads="as Flink SQL",
        clock="as Flink SQL; its JVM has touched all of its 8 GB before, and collects garbage in parallel",
        variables={
            **_FLINK.variables,
            "JVM_ARGS": "-Xms8g -Xmx8g -XX:+AlwaysPreTouch -XX:+UseParallelGC",
        },
    ),
    Peer(
        "pyflink",
        "PyFlink DataStream",
        "pyflink_datastream",
        packages=FLINK,
        environment=".venv-pyflink",
        keeps=f"{_COMMITS} every second",
        reads="as Flink SQL",
        writes="nothing (a discarding sink of the JVM)",
        clock="as Flink SQL; functions in Python processes of their own",
        # In q5 its windows take each bid five times: with a million it would be a quarter of an hour.
        events_max=dict.fromkeys(READS, 1_000_000) | {"q5": 20_000},
        warm_up_max=100_000,
    ),
    Peer(
        "spark",
        "Spark Structured Streaming",
        "spark_streaming",
        packages=(),
        environment=".venv",
        keeps=f"{_COMMITS}, one with each micro-batch",
        reads="Parquet files, one per micro-batch",
        writes="nothing (`noop`)",
        clock="start of the streaming query to its end; second one of the session",
        events_max=dict.fromkeys(READS, 10_000_000),
    ),
    Peer(
        "bytewax",
        "bytewax",
        "bytewax_flow",
        packages=("bytewax==0.21.1", PYARROW),
        environment=".venv-bytewax",
        keeps="nothing",
        reads="Parquet files by pyarrow, a row group an item",
        writes="nothing (an empty sink)",
        clock="the flow, from the first row group read",
        events_max=dict.fromkeys(READS, 10_000_000)
        | {"q3": 2_000_000, "q5": 1_000_000, "q8": 2_000_000, "q11": 1_000_000},
    ),
    Peer(
        "pathway",
        "pathway",
        "pathway_tables",
        packages=("pathway==0.33.0",),
        environment=".venv-pathway",
        keeps=_BATCH,
        reads="CSV files with the columns of the query (it reads no Parquet)",
        writes="nothing (`pw.io.null`)",
        clock="`pw.run`, static mode; second one of the process",
        events_max=dict.fromkeys(READS, 1_000_000),
        warm_up_max=100_000,
    ),
)
PEERS: Final = {peer.name: peer for peer in _PEERS}
