"""Readers that hold several splits after a restart with fewer of them: none makes the rows of another late."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.datagen.source import DataGeneratorSource, NumberSequenceSource
from headrace.connectors.files.formats import line_blocks
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import Types
from headrace.functions.source import InputStatus, Source
from headrace.functions.specs.operator_specs import TimestampsAndWatermarksSpec
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.operators.sources_sinks.event_time_output import WHOLE_SOURCE, EventTimeOutput
from headrace.testing.operator_harness import OperatorHarness, TimeAt
from tests.unit.connectors.replays import POLLS_MAX, SourceJob

COUNT = 40_000


class ByItself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


ASCENDING = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByItself())


class SlowerJob:
    """One reader that goes on with the splits of two, which were polled unevenly; a watermark follows each batch."""

    def __init__(self, source: Source, first_polls: int, second_polls: int) -> None:
        before = SourceJob(source, 2, Types.LONG())
        for index, count in enumerate((first_polls, second_polls)):
            for _ in range(count):
                before.readers[index].poll_next(before.outputs[index])
                before.advance(1)
        snapshot = before.checkpoint(1)
        before.close()
        assert len(snapshot.splits) == 2, "both are under way"
        self.rows_before = before.rows
        self.job = SourceJob(source, 1, Types.LONG(), snapshot)
        spec = TimestampsAndWatermarksSpec(ASCENDING)
        self.harness = OperatorHarness(spec, input_types=[Types.LONG()], output_type=Types.LONG())
        self.output = EventTimeOutput(
            ASCENDING, self.harness.context, self.harness.output, is_bounded=False
        )
        self.output.start(WHOLE_SOURCE)

    def poll(self) -> InputStatus:
        status = self.job.readers[0].poll_next(self.output)
        self.output.emit_watermark()
        self.job.advance(1)
        return status

    def run_to_end(self) -> None:
        for _ in range(POLLS_MAX):
            if self.poll() is InputStatus.END_OF_INPUT:
                return
        raise AssertionError("the reader does not end")

    @property
    def split_ids(self) -> tuple[str, str]:
        """Ids of the two splits."""
        assert self.output.watermarks is not None
        one, other = sorted(self.output.watermarks.split_watermarks)
        return one, other

    @property
    def late_rows(self) -> list[Any]:
        late, watermark_ms = list[Any](), float("-inf")
        for element in self.harness.output.main:
            if element[0] == "watermark":
                watermark_ms = element[1]
            elif element[0] == "row" and element[2] <= watermark_ms:
                late.append(element[1])
        return late


def files(folder: Path, *, watches: bool = False) -> FileSource:
    """Two files with the even and the odd numbers."""
    for name, first in (("even", 0), ("odd", 1)):
        lines = "\n".join(str(number) for number in range(first, COUNT, 2))
        (folder / name).write_text(lines, encoding="utf-8")
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
    if watches:
        builder.monitor_continuously(Duration.of_millis(1))
    return builder.build()


@pytest.fixture(params=["generated", "numbers", "files"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    made: dict[str, Source] = {
        "generated": DataGeneratorSource(lambda index: index, COUNT, Types.LONG()),
        "numbers": NumberSequenceSource(0, COUNT - 1),
    }
    return made.get(request.param) or files(tmp_path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "CHUNK_SIZE_BYTES", 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("polls", [(1, 1), (4, 1), (1, 4)])
def test_splits_that_got_unequally_far_make_no_row_late(
    source: Source, polls: Sequence[int]
) -> None:
    slower = SlowerJob(source, *polls)
    slower.run_to_end()
    assert slower.late_rows == []
    rows = [int(row) for row in [*slower.rows_before, *slower.harness.output.rows]]
    assert sorted(rows) == list(range(COUNT))
    reached = slower.harness.output.watermarks[-1]
    assert reached == int(slower.harness.output.rows[-1]) - 1, "ended splits hold nothing back"


def test_one_of_several_splits_can_be_paused_and_goes_on_later(source: Source) -> None:
    slower = SlowerJob(source, 1, 1)
    slower.poll()
    paused, free = slower.split_ids
    reader = slower.job.readers[0]
    reader.pause_or_resume_splits([paused], [])
    for _ in range(POLLS_MAX):
        if slower.poll() is InputStatus.NOTHING_AVAILABLE:
            break
    reached = slower.output.watermarks
    assert reached is not None
    assert list(reached.split_watermarks) == [paused], "the other was read to its end"
    row_count = len(slower.harness.output.rows)
    assert slower.poll() is InputStatus.NOTHING_AVAILABLE
    assert len(slower.harness.output.rows) == row_count
    reader.pause_or_resume_splits([], [paused, free])
    assert slower.job.contexts[0].wake_count > 0
    slower.run_to_end()
    rows = [int(row) for row in [*slower.rows_before, *slower.harness.output.rows]]
    assert sorted(rows) == list(range(COUNT))


def test_a_watching_reader_without_work_says_how_far_it_got_and_becomes_idle(
    tmp_path: Path,
) -> None:
    slower = SlowerJob(files(tmp_path, watches=True), 4, 1)
    for _ in range(POLLS_MAX):
        if slower.poll() is InputStatus.NOTHING_AVAILABLE:
            break
    assert slower.harness.output.watermarks[-1] == int(slower.harness.output.rows[-1]) - 1
    slower.harness.perform(TimeAt(200_000))
    assert slower.harness.output.is_idle
    (tmp_path / "later").write_text(f"{COUNT}\n", encoding="utf-8")
    for _ in range(10):
        slower.poll()
    assert slower.harness.output.rows[-1] == str(COUNT)
    assert not slower.harness.output.is_idle
    assert slower.harness.output.watermarks[-1] == COUNT - 1
