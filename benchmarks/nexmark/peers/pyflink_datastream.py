"""PyFlink's DataStream API: Python functions for each record, in process mode, on the cluster of `flink_cluster.py`.

The JVM reads Arrow and makes watermarks; two Python workers run the functions. Its clock starts when all tasks run, its
second job in one JVM; workers start within it, as they do for every job. Results are thrown away by a sink of the JVM;
those to be compared are written as text.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyflink.common import Time, Types  # pyright: ignore[reportMissingImports]
from pyflink.common.serialization import Encoder  # pyright: ignore[reportMissingImports]
from pyflink.datastream import (  # pyright: ignore[reportMissingImports]
    AggregateFunction,
    KeyedCoProcessFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.connectors.file_system import (  # pyright: ignore[reportMissingImports]
    FileSink,
)
from pyflink.datastream.state import (  # pyright: ignore[reportMissingImports]
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from pyflink.datastream.window import (  # pyright: ignore[reportMissingImports]
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from pyflink.table import ChangelogMode, DataTypes, Schema  # pyright: ignore[reportMissingImports]

from benchmarks.nexmark.peers.flink_cluster import FlinkCluster
from benchmarks.nexmark.peers.measure import READS, TEXTS, Figures, peer_main

# Where client and cluster share a machine, PyFlink would run all workers as threads of the client instead.
os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 (it is spelt so)
SIZE_MS: Final = 10_000
EVENT_TIME: Final = "rowtime"
Stream = Callable[[str], Any]


def longs(count: int) -> Any:
    """Return the type of a tuple of numbers; a type that was used once holds what cannot be pickled with functions."""
    return Types.TUPLE([Types.LONG()] * count)


class Count(AggregateFunction):
    """Counts the records of each key."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Highest(AggregateFunction):
    """The bids of the highest price; ties stay. As tuples: rows come as Row, and are refused where a tuple is due."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        if not accumulator or value[2] > accumulator[0][2]:
            return [tuple(value)]
        return [*accumulator, tuple(value)] if value[2] == accumulator[0][2] else accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        best = max(value[2] for value in [*a, *b])
        return [value for value in [*a, *b] if value[2] == best]


class HighestPrice(AggregateFunction):
    """The highest price."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return max(value[0], accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return max(a, b)


class WithWindow(ProcessWindowFunction):
    """Gives key, begin and end of the window, and what was aggregated."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        window = context.window()
        for value in elements:
            yield key, window.start, window.end, value


class Members(ProcessWindowFunction):
    """Gives the members of an aggregated list."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        for members in elements:
            yield from members


class MostBids(ProcessWindowFunction):
    """Gives the counts that are as high as the highest."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        counts = list(elements)
        most = max(count[3] for count in counts)
        yield from (count for count in counts if count[3] == most)


class JoinSellers(KeyedCoProcessFunction):
    """Joins auctions with the person that sells them; keeps both."""

    def open(self, runtime_context: Any) -> None:
        self.person = runtime_context.get_state(
            ValueStateDescriptor("person", Types.PICKLED_BYTE_ARRAY())
        )
        self.auctions = runtime_context.get_list_state(
            ListStateDescriptor("auctions", Types.LONG())
        )

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        person = self.person.value()
        self.auctions.add(value[0])
        if person is not None:
            yield *person, value[0]

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        person = (value[1], value[2], value[3])
        self.person.update(person)
        for auction in self.auctions.get():
            yield *person, auction


class JoinNewcomers(KeyedCoProcessFunction):
    """Joins persons with the windows in which they sold; what a window needs goes at its end."""

    def open(self, runtime_context: Any) -> None:
        self.names = runtime_context.get_map_state(
            MapStateDescriptor("names", Types.LONG(), Types.STRING())
        )
        self.sold = runtime_context.get_map_state(
            MapStateDescriptor("sold", Types.LONG(), Types.BOOLEAN())
        )

    def process_element1(self, value: Any, ctx: Any) -> None:
        begin = self._begin(ctx)
        self.names.put(begin, value[1])

    def process_element2(self, value: Any, ctx: Any) -> None:
        begin = self._begin(ctx)
        self.sold.put(begin, True)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        begin = timestamp + 1 - SIZE_MS
        name = self.names.get(begin)
        if name is not None and self.sold.contains(begin):
            yield ctx.get_current_key(), name, begin
        self.names.remove(begin)
        self.sold.remove(begin)

    def _begin(self, ctx: Any) -> int:
        begin = ctx.timestamp() // SIZE_MS * SIZE_MS
        ctx.timer_service().register_event_time_timer(begin + SIZE_MS - 1)
        return begin


def q0(stream: Stream) -> Any:
    return stream("bid").map(lambda bid: (bid[0], bid[1], bid[2], bid[3]), longs(4))


def q1(stream: Stream) -> Any:
    euros = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG()])
    return stream("bid").map(lambda bid: (bid[0], bid[1], bid[2] * 0.908, bid[3]), euros)


def q2(stream: Stream) -> Any:
    return stream("bid").filter(lambda bid: bid[0] % 123 == 0)


def q3(stream: Stream) -> Any:
    auctions = stream("auction").filter(lambda auction: auction[2] == 10)
    persons = stream("person").filter(lambda person: person[3] in ("or", "id", "ca"))
    pairs = auctions.connect(persons).key_by(
        lambda auction: auction[1], lambda person: person[0], Types.LONG()
    )
    text = Types.STRING()
    return pairs.process(JoinSellers(), Types.TUPLE([text, text, text, Types.LONG()]))


def q5(stream: Stream) -> Any:
    sliding = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2))
    bids = stream("bid").key_by(lambda bid: bid[0], Types.LONG()).window(sliding)
    counts = bids.aggregate(
        Count(), WithWindow(), accumulator_type=Types.LONG(), output_type=longs(4)
    )
    # All counts of a window bear its last millisecond, so each of these windows holds those of one.
    windows = counts.key_by(lambda count: count[1], Types.LONG())
    return windows.window(TumblingEventTimeWindows.of(Time.seconds(2))).process(
        MostBids(), longs(4)
    )


def q7(stream: Stream) -> Any:
    bids = stream("bid").key_by(lambda bid: 0, Types.LONG())
    tumbling = bids.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    pickled = Types.PICKLED_BYTE_ARRAY()
    return tumbling.aggregate(Highest(), Members(), accumulator_type=pickled, output_type=longs(4))


def q7max(stream: Stream) -> Any:
    prices = stream("bid").key_by(lambda bid: 0, Types.LONG())
    tumbling = prices.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    best = tumbling.aggregate(
        HighestPrice(), WithWindow(), accumulator_type=Types.LONG(), output_type=longs(4)
    )
    return best.map(lambda row: (row[1], row[2], row[3]), longs(3))


def q8(stream: Stream) -> Any:
    pairs = stream("person").connect(stream("auction"))
    by_person = pairs.key_by(lambda person: person[0], lambda auction: auction[0], Types.LONG())
    return by_person.process(
        JoinNewcomers(), Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    )


def q11(stream: Stream) -> Any:
    bids = stream("bid").key_by(lambda bid: bid[0], Types.LONG())
    sessions = bids.window(EventTimeSessionWindows.with_gap(Time.milliseconds(SIZE_MS)))
    return sessions.aggregate(
        Count(), WithWindow(), accumulator_type=Types.LONG(), output_type=longs(4)
    )


QUERIES: Final[dict[str, Callable[[Stream], Any]]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q5": q5,
    "q7": q7,
    "q7max": q7max,
    "q8": q8,
    "q11": q11,
}


def build(cluster: FlinkCluster, query: str, events: Path, out: Path | None) -> Any:
    """Return the job of a query."""
    env, tables = cluster.table_environment()
    env.set_python_executable(sys.executable)
    cluster.create_tables(tables, query, events, event_time=EVENT_TIME)

    def stream(kind: str) -> Any:
        columns = READS[query][kind]
        schema = Schema.new_builder()
        for name in columns:
            schema.column(name, DataTypes.STRING() if name in TEXTS else DataTypes.BIGINT())
        if "date_time" in columns:
            # The event time becomes that of the records; no column of it goes to Python.
            schema.column_by_metadata(EVENT_TIME, DataTypes.TIMESTAMP_LTZ(3), "rowtime")
        table = tables.from_path(kind)
        return tables.to_changelog_stream(table, schema.build(), ChangelogMode.insert_only())

    results = QUERIES[query](stream)
    return job_graph(cluster, env, results, out)


def job_graph(cluster: FlinkCluster, env: Any, results: Any, out: Path | None) -> Any:
    """Return the job that writes results as lines below `out`, or drops them where it is None."""
    if out is None:
        discarding = cluster.jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
        results._j_data_stream.sinkTo(discarding)
    else:
        lines = results.map(lambda row: ",".join(map(str, row)), Types.STRING())
        files = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
        lines.sink_to(files.build())
    return env._generate_stream_graph(clear_transformations=True).getJobGraph()


def main() -> None:
    """Run a query."""
    with FlinkCluster() as cluster:

        def run(query: str, events: Path, out: Path | None) -> Figures:
            return cluster.run(build(cluster, query, events, out))

        peer_main(run, QUERIES, ["apache-flink"])


if __name__ == "__main__":
    main()
