"""Persons, auctions and bids as streams that read only the columns a query names."""

from pathlib import Path
from typing import Final

from benchmarks.nexmark.events import WATERMARK_DELAY_MS
from headrace import DataStream, Duration, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.functions.watermarks import ColumnTimestampAssigner

_TEXTS: Final = frozenset(
    {
        "name",
        "email_address",
        "credit_card",
        "city",
        "state",
        "extra",
        "item_name",
        "description",
        "channel",
        "url",
    }
)


class EventStreams:
    """Makes the streams of one set of files; endless ones wait for more when all files are read."""

    def __init__(
        self, env: StreamExecutionEnvironment, directory: Path, *, are_endless: bool = False
    ) -> None:
        self._env = env
        self._directory = directory
        self._are_endless = are_endless

    def person(self, *columns: str) -> DataStream:
        """Persons with these columns."""
        return self._stream("person", columns)

    def auction(self, *columns: str) -> DataStream:
        """Auctions with these columns."""
        return self._stream("auction", columns)

    def bid(self, *columns: str) -> DataStream:
        """Bids with these columns."""
        return self._stream("bid", columns)

    def _stream(self, kind: str, columns: tuple[str, ...]) -> DataStream:
        types = [Types.STRING() if name in _TEXTS else Types.LONG() for name in columns]
        row_type = Types.ROW_NAMED(list(columns), types)
        files = ParquetColumnarRowInputFormat(row_type)
        source = FileSource.for_bulk_file_format(files, str(self._directory / kind))
        if self._are_endless:
            source = source.monitor_continuously(Duration.of_seconds(1))
        strategy = WatermarkStrategy.no_watermarks()
        if "date_time" in columns:
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(
                Duration.of_millis(WATERMARK_DELAY_MS)
            ).with_timestamp_assigner(ColumnTimestampAssigner("date_time"))
        return self._env.from_source(source.build(), strategy, kind)
