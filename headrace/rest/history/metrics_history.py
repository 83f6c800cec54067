"""MetricsHistory: metrics of a job's vertices over time, in a bounded number of points. Pure.

Whatever the length of the job, a vertex has at most POINTS_MAX points: when they are full, every other one is dropped
and the next ones are taken half as often.
"""

import math
from array import array
from typing import TYPE_CHECKING, Final

from headrace.gateways.job_master import JobDetails, VertexDetails
from headrace.metrics import names
from headrace.metrics.event_time import event_time_of, lag_ms

if TYPE_CHECKING:
    from headrace.rest.models.vertices import MetricsHistoryInfo

POINTS_MAX: Final = 200
_POINTS_MIN: Final = 20
_ALL_POINTS: Final = 20_000
"""Maximum number of points of all vertices together: a job with very many vertices has fewer points for each."""
_UNKNOWN: Final = math.nan
_COLUMN_COUNT: Final = 5


class _Series:
    """Points of one vertex in columns; NaN if a value is unknown."""

    def __init__(self, name: str, length: int) -> None:
        self.name: Final = name
        self.columns: Final = tuple(array("d", [_UNKNOWN]) * length for _ in range(_COLUMN_COUNT))

    def add(self, values: tuple[float, ...]) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def halve(self) -> None:
        for column in self.columns:
            del column[1::2]


class MetricsHistory:
    """Points of one job. `interval_ms`: minimum distance between points at the beginning."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._times_ms: list[int] = []
        self._series: dict[str, _Series] = {}

    def add(self, now_ms: int, details: JobDetails, *, is_last: bool = False) -> None:
        """Add a point, unless the last one is too close; `is_last`: at the end of the job, however close."""
        times = self._times_ms
        if times and not is_last and now_ms - times[-1] < self._interval_ms:
            return
        if times and now_ms <= times[-1]:
            return
        points_max = max(_POINTS_MIN, min(POINTS_MAX, _ALL_POINTS // max(1, len(details.vertices))))
        if len(times) >= points_max:
            del times[1::2]
            for series in self._series.values():
                series.halve()
            self._interval_ms *= 2
        for vertex in details.vertices:
            vertex_id = vertex.vertex_id.hex()
            series = self._series.get(vertex_id)
            if series is None:
                series = self._series[vertex_id] = _Series(vertex.name, len(times))
            series.add(_point(vertex, now_ms))
        times.append(now_ms)

    def shown(self, job: str) -> "MetricsHistoryInfo":
        """Return all points, oldest first."""
        # Imported late: hosts of clusters import this file as they start, and pydantic takes a while.
        from headrace.rest.models.vertices import MetricsHistoryInfo, VertexMetricsHistory

        return MetricsHistoryInfo(
            jid=job,
            interval=self._interval_ms,
            timestamps=list(self._times_ms),
            vertices=[
                VertexMetricsHistory(
                    id=vertex_id,
                    name=series.name,
                    records_in_per_second=_shown(series.columns[0]),
                    records_out_per_second=_shown(series.columns[1]),
                    busy=_shown(series.columns[2]),
                    back_pressured=_shown(series.columns[3]),
                    watermark_lag=_shown(series.columns[4]),
                )
                for vertex_id, series in self._series.items()
            ],
        )


def _shown(column: "array[float]") -> list[float | None]:
    return [value if math.isfinite(value) else None for value in column]


def _point(vertex: VertexDetails, now_ms: int) -> tuple[float, ...]:
    def value(name: names.MetricName) -> float:
        found = vertex.metric(name)
        return _UNKNOWN if found is None else round(found, 1)

    watermark_lag = lag_ms(event_time_of(vertex.metric), now_ms)
    return (
        value(names.NUM_RECORDS_IN_PER_SECOND),
        value(names.NUM_RECORDS_OUT_PER_SECOND),
        value(names.BUSY_TIME),
        value(names.BACK_PRESSURED_TIME),
        _UNKNOWN if watermark_lag is None else watermark_lag,
    )
