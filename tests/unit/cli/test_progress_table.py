"""The live table on terminals of several widths."""

import io

import pytest
from rich.console import Console

from headrace.cli.progress import CountedVertex, JobView, table_of

VERTEX = CountedVertex(
    1,
    "0b",
    "TumblingEventTimeWindows -> (key_by -> Sink, Sink: late)",
    "RUNNING",
    2,
    busy=1.0,
    back_pressured=0.25,
    watermark_ms=1_375_000_000_000,
    records_in=336_776,
    records_out=21_148,
    records_per_second=123_456.0,
    late_records=24,
)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_figure_is_whole_whatever_the_width(width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(table_of(JobView("departures", "RUNNING", 12.0, (VERTEX,), ""), width))
    assert isinstance(console.file, io.StringIO)
    (line,) = [text for text in console.file.getvalue().splitlines() if "Tumbling" in text]
    assert len(line) <= width
    for figure in ("336.8 k", "21.1 k", "123.5 k", "2013-07-28 08:26", "100%", "25%", "24"):
        assert figure in line
