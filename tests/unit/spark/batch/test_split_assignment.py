"""Splits of files are dealt to subtasks before any of them runs, each once."""

from pathlib import Path

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.core.config import Settings
from headrace.datastream.connectors.file_system import FileSource, StreamFormat
from headrace.functions.source import AddSplits, NoMoreSplits, event_to_reader
from headrace.spark.batch.split_assignment import assigned_splits
from tests.unit.api.recording import recording


def test_every_file_goes_to_one_subtask_and_each_hears_that_there_are_no_more(
    tmp_path: Path,
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
    with recording(2) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        source = FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), str(tmp_path)
        ).build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").print()
        env.execute_async()
        graph = executor.last
    dealt = assigned_splits(graph.job_id, graph.vertices[0], Settings())
    events = [[event_to_reader(event) for event in own] for own in dealt]
    assert len(events) == 2
    assert [own[-1] for own in events] == [NoMoreSplits(), NoMoreSplits()]
    splits = [
        split.split_id
        for own in events
        for event in own
        if isinstance(event, AddSplits)
        for split in event.splits
    ]
    assert len(splits) == len(set(splits)) == 5
    assert all(len(own) > 2 for own in events)
