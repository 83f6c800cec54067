"""print, collect and sinks; and collections as sources."""

import pyarrow as pa
import pytest

from headrace.core.operator_events import END, PIECE_SIZE_MAX, is_last_piece, piece_of
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_mapping import columns_to_rows
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.sources.collection_source import CollectionSource
from headrace.functions.specs.operator_specs import (
    CollectSinkSpec,
    PrintSinkSpec,
    SinkSpec,
    SourceSpec,
)
from headrace.testing.operator_harness import PICKLED, OperatorHarness, Rows


@pytest.mark.parametrize(
    ("identifier", "parallelism", "prefix"),
    [(None, 1, ""), ("id", 1, "id> "), (None, 2, "2> "), ("id", 2, "id:2> ")],
)
def test_a_printed_line_begins_with_identifier_and_subtask(
    identifier: str | None, parallelism: int, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = OperatorHarness(
        PrintSinkSpec(identifier), parallelism=parallelism, subtask_index=parallelism - 1
    )
    harness.perform(Rows([("a", 1), {"k": 2}]))
    assert capsys.readouterr().out == f"{prefix}('a', 1)\n{prefix}{{'k': 2}}\n"


def test_typed_records_are_printed_as_java_does(capsys: pytest.CaptureFixture[str]) -> None:
    row_type = Types.ROW([Types.STRING(), Types.DOUBLE()])
    harness = OperatorHarness(PrintSinkSpec(None), input_types=[row_type])
    harness.perform(Rows([Row("a", 1.0), Row(None, 2.5)]))
    assert capsys.readouterr().out == "+I[a, 1.0]\n+I[null, 2.5]\n"


def _collected(events: list[bytes], value_type: TypeInformation) -> list[object]:
    rows: list[object] = []
    content = b""
    for event in events:
        content += piece_of(event)
        if is_last_piece(event):
            for columns in pa.ipc.open_stream(content):
                rows.extend(columns_to_rows(columns, value_type))
            content = b""
    return rows


def test_collected_rows_reach_the_coordinator_in_order_and_then_the_end() -> None:
    harness = OperatorHarness(CollectSinkSpec())
    harness.perform(Rows(["a", ("b", 1)], [1, 2]))
    harness.perform(Rows([None]))
    harness.finish()
    assert harness.events[-1] == END
    assert _collected(harness.events[:-1], PICKLED) == ["a", ("b", 1), None]


def test_large_results_are_split_into_messages_of_bounded_size() -> None:
    values = ["x" * 100_000] * 40
    harness = OperatorHarness(CollectSinkSpec(), input_types=[Types.STRING()])
    harness.perform(Rows(values))
    assert max(map(len, harness.events)) < PIECE_SIZE_MAX * 1.1
    assert _collected(harness.events, Types.STRING()) == values


def test_a_row_larger_than_a_message_travels_in_pieces() -> None:
    values = ["small", "x" * (3 * PIECE_SIZE_MAX), "last"]
    harness = OperatorHarness(CollectSinkSpec(), input_types=[Types.STRING()])
    harness.perform(Rows(values))
    assert max(map(len, harness.events)) <= PIECE_SIZE_MAX + 1
    assert _collected(harness.events, Types.STRING()) == values


@pytest.mark.parametrize(("mode", "sent"), [("BATCH", [1, 2, 3]), ("STREAMING", [1, 2, 3, 4, 5])])
def test_a_limit_bounds_what_goes_to_the_driver_in_batch_mode(mode: str, sent: list[int]) -> None:
    harness = OperatorHarness(
        CollectSinkSpec(limit=3),
        input_types=[Types.INT()],
        settings={"execution.runtime-mode": mode},
    )
    harness.perform(Rows([1, 2]))
    harness.perform(Rows([3, 4]))
    harness.perform(Rows([5]))
    harness.finish()
    assert harness.events[-1] == END
    assert _collected(harness.events[:-1], Types.INT()) == sent


class _ListSink(Sink):
    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _ListWriter(self.calls)


class _ListWriter(SinkWriter):
    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def write_batch(self, batch: RecordBatch) -> None:
        if "bad" in batch.rows():
            raise ValueError("no room")
        self.calls.extend(batch.rows())

    def flush(self, end_of_input: bool) -> None:
        self.calls.append(("flush", end_of_input))

    def close(self) -> None:
        self.calls.append("close")


def test_a_sink_writer_is_fed_flushed_at_the_end_and_closed() -> None:
    calls: list[object] = []
    harness = OperatorHarness(SinkSpec(_ListSink(calls)))
    harness.perform(Rows([1, 2]))
    harness.finish()
    harness.operator.close()
    assert calls == [1, 2, ("flush", True), "close"]


def test_a_failing_sink_names_its_operator() -> None:
    harness = OperatorHarness(SinkSpec(_ListSink([])), operator_name="Sink: list")
    with pytest.raises(Exception, match=r"ValueError: no room .*'Sink: list'"):
        harness.perform(Rows(["bad"]))


@pytest.mark.parametrize(
    ("values", "value_type"),
    [
        (["a", ("b", [1]), None], None),
        ([Row(1, "a"), Row(2, None)], Types.ROW([Types.INT(), Types.STRING()])),
        ([], Types.INT()),
        (list(range(10_000)), Types.LONG()),
    ],
)
def test_a_collection_comes_out_as_it_went_in(
    values: list[object], value_type: TypeInformation | None
) -> None:
    source = CollectionSource(values, value_type)
    harness = OperatorHarness(
        SourceSpec(source, None), input_types=[], output_type=source.produced_type or PICKLED
    )
    harness.poll_to_end()
    expected = [Row(f0=v[0], f1=v[1]) if isinstance(v, Row) else v for v in values]
    assert harness.output.rows == expected
    assert max((batch.num_rows for batch in harness.output.batches), default=0) <= 4096


def test_a_collection_is_emitted_by_one_subtask() -> None:
    harness = OperatorHarness(
        SourceSpec(CollectionSource([1, 2]), None), input_types=[], parallelism=2, subtask_index=1
    )
    harness.poll_to_end()
    assert harness.output.rows == []
