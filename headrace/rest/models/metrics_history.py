"""Shapes of metrics over time, which are Headrace's own."""

from headrace.rest.models.spelling import KebabModel, Milliseconds


class VertexMetricsHistory(KebabModel):
    """Points of one vertex, one for each timestamp; null where nothing was known.

    `busy` and `back-pressured`: milliseconds per second, the mean of its subtasks. `watermark-lag`: milliseconds by
    which its watermark was behind.
    """

    id: str
    name: str
    records_in_per_second: list[float | None]
    records_out_per_second: list[float | None]
    busy: list[float | None]
    back_pressured: list[float | None]
    watermark_lag: list[float | None]


class MetricsHistoryInfo(KebabModel):
    """Metrics of a job over time. `interval`: milliseconds between two points, at least."""

    jid: str
    interval: int
    timestamps: list[Milliseconds]
    vertices: list[VertexMetricsHistory]
