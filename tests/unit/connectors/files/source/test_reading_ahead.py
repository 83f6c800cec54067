"""A reader of small files asks for the next one while it reads."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats.splits import FileSplit, decode_file_split
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source import reader as reader_module
from headrace.connectors.files.source.reader import FileReader
from headrace.core.types.type_info import Types
from headrace.functions.source import (
    AddSplits,
    InputStatus,
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    decode_split,
    event_bytes,
    event_to_coordinator,
)
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows


class Reading:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.events: list[Any] = []
        self.context: Any = ConnectorContext(Types.STRING())
        self.context.send_event = lambda payload: self.events.append(event_to_coordinator(payload))
        self.reader = FileReader(StreamFormat.text_line_format(), self.context)
        self.rows = Rows()
        self.reader.start()

    @property
    def request_count(self) -> int:
        assert isinstance(self.events[0], RegisterReader)
        return sum(isinstance(event, RequestSplit) for event in self.events)

    def give(self, name: str) -> None:
        file = self._folder / name
        file.write_text(f"{name}\n", encoding="utf-8")
        status = file.stat()
        split = FileSplit("/", str(file), 0, status.st_size, status.st_size, status.st_mtime_ns)
        self.reader.handle_event(event_bytes(AddSplits((split.encoded(),))))

    def poll(self) -> InputStatus:
        return self.reader.poll_next(self.rows)

    def poll_until_it_waits(self) -> InputStatus:
        while (status := self.poll()) is InputStatus.MORE_AVAILABLE:
            pass
        return status


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path)


def test_the_first_split_is_not_read_ahead_of_others(reading: Reading) -> None:
    reading.poll()
    assert reading.request_count == 1
    reading.give("a")
    reading.poll()
    assert reading.request_count == 1


def test_from_the_second_on_the_next_split_is_there_when_one_has_ended(reading: Reading) -> None:
    reading.poll()
    reading.give("a")
    reading.poll_until_it_waits()
    assert reading.request_count == 2
    reading.give("b")
    reading.poll()
    assert reading.request_count == 3
    reading.give("c")
    reading.reader.handle_event(event_bytes(NoMoreSplits()))
    assert reading.poll_until_it_waits() is InputStatus.END_OF_INPUT
    assert reading.rows.values == ["a", "b", "c"]


def test_a_large_split_is_read_to_its_end_before_another_is_asked_for(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "AHEAD_BYTES", 1)
    reading.poll()
    for name in "ab":
        reading.give(name)
        reading.poll()
        before = reading.request_count
        reading.poll_until_it_waits()
        assert reading.request_count == before + 1


def test_a_split_that_waits_behind_another_is_in_the_snapshot_and_holds_no_watermark(
    reading: Reading,
) -> None:
    reading.poll()
    reading.give("a")
    reading.poll_until_it_waits()
    reading.give("b")
    reading.poll()
    reading.give("c")
    stored = [decode_file_split(decode_split(one)) for one in reading.reader.snapshot_state(1)]
    assert [(Path(split.name).name, split.position) for split in stored] == [("b", 2), ("c", None)]
    assert not any("/c:" in split_id for split_id in reading.rows.splits)


def test_all_that_was_given_is_read_after_the_enumerator_has_nothing_left(
    reading: Reading,
) -> None:
    reading.poll()
    reading.give("a")
    reading.poll_until_it_waits()
    reading.give("b")
    reading.poll()
    reading.reader.handle_event(event_bytes(NoMoreSplits()))
    assert reading.poll_until_it_waits() is InputStatus.END_OF_INPUT
    assert reading.rows.values == ["a", "b"]
    assert reading.request_count == 3


class ParquetReading(Reading):
    """Reads the column `id`, eight bytes a row, ten rows at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
        self.context = ConnectorContext(self.row_type)
        self.context.send_event = lambda payload: self.events.append(event_to_coordinator(payload))
        read = ParquetColumnarRowInputFormat(self.row_type, batch_size=10)
        self.reader = FileReader(read, self.context)

    def give(self, name: str) -> None:
        file = self._folder / name
        columns = {"id": list(range(40)), "text": ["not read" * 1000] * 40}
        pq.write_table(pa.table(columns), file, compression="none", use_dictionary=False)
        status = file.stat()
        split = FileSplit("/", str(file), 0, status.st_size, status.st_size, status.st_mtime_ns)
        self.reader.handle_event(event_bytes(AddSplits((split.encoded(),))))


def second_of_two_files(tmp_path: Path) -> ParquetReading:
    """A reader that has read one file, and is about to read another."""
    reading = ParquetReading(tmp_path)
    reading.poll()
    reading.give("a")
    reading.poll_until_it_waits()
    reading.give("b")
    return reading


def test_columns_that_are_not_read_make_no_split_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "AHEAD_BYTES", 1000)
    reading = second_of_two_files(tmp_path)
    before = reading.request_count
    reading.poll()
    assert reading.request_count == before + 1


def test_the_next_split_is_asked_for_when_little_of_a_large_one_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "AHEAD_BYTES", 150)
    reading = second_of_two_files(tmp_path)
    before = reading.request_count
    asked: list[int] = []
    for _ in range(4):
        reading.poll()
        asked.append(reading.request_count - before)
    # Of forty rows, with some bytes around them, the last ten are less than 150 bytes.
    assert asked == [0, 0, 0, 1]


def test_what_is_still_to_be_read_is_known_in_bytes(reading: Reading) -> None:
    reading.poll()
    assert reading.reader.pending_byte_count() == 0
    reading.give("a")
    reading.give("b")
    assert reading.reader.pending_byte_count() == 4
    reading.poll_until_it_waits()
    assert reading.reader.pending_byte_count() == 0
