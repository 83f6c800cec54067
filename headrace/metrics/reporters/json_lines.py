"""JsonLinesReporter: appends metrics to a file of the process, a JSON object per group and report, and one per span.

{"timestamp":1700000000000,"scope":"host.taskmanager.tm-1","variables":{"host":"host","tm_id":"tm-1"},
 "metrics":{"Status.JVM.Threads.Count":12},"ended":false}
{"timestamp":1700000000500,"span":"Checkpoint","duration_ms":120,"attributes":{"checkpointId":7},"error":""}
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.core.errors import ConfigurationError
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.options import FILE_SIZE, REPORTER_DIRECTORY
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig

_NOT_IN_A_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


class JsonLinesReporter(MetricReporter):
    """Appends to a file that exceeds its limit by at most one report; the last file is kept with the suffix `.1`."""

    OPTIONS = (REPORTER_DIRECTORY, FILE_SIZE)

    def __init__(self, config: ReporterConfig) -> None:
        super().__init__(config)
        folder = config.get_option(REPORTER_DIRECTORY)
        if not folder:
            raise ConfigurationError(
                config.key_of(REPORTER_DIRECTORY),
                None,
                "set the folder for the files",
            )
        name = _NOT_IN_A_FILE_NAME.sub("_", config.process_name).lstrip(".")
        self.path: Final = Path(folder) / f"{name}.jsonl"
        self._size_max: Final = config.get_option(FILE_SIZE)

    def open(self, read: Callable[[], MetricReport]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def report(self, report: MetricReport) -> None:
        time_ms = report.timestamp_ms
        self._append(
            [
                *(_line_of(time_ms, group, has_ended=False) for group in report.groups),
                *(_line_of(time_ms, group, has_ended=True) for group in report.ended),
            ]
        )

    def report_spans(self, spans: Sequence[Span]) -> None:
        self._append(
            {
                "timestamp": span.end_ms,
                "span": span.name,
                "duration_ms": span.end_ms - span.start_ms,
                "attributes": dict(span.attributes),
                "error": span.error,
            }
            for span in spans
        )

    def _append(self, lines: Iterable[dict[str, Any]]) -> None:
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        if not content:
            return
        if self.path.exists() and self.path.stat().st_size >= self._size_max:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        with self.path.open("ab") as file:
            file.write(content)


def _line_of(time_ms: int, group: GroupReading, *, has_ended: bool) -> dict[str, Any]:
    return {
        "timestamp": time_ms,
        "scope": ".".join(group.scope),
        "variables": dict(group.variables),
        "metrics": {
            ".".join((*sample.path, sample.name)): sample.value for sample in group.samples
        },
        "ended": has_ended,
    }
