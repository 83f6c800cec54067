"""Reports of a made-up process, for tests of the registry and of reporters."""

from collections.abc import Callable, Mapping, Sequence

from headrace.metrics.groups import MetricGroup, samples_of
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig
from headrace.metrics.scopes import GroupKind

TASK = {"host": "h", "tm_id": "tm-1", "job_name": "orders", "task_name": "count", "subtask_index": "0"}  # fmt: skip
SPAN = Span("Checkpoint", 1_000, 1_250, {"checkpointId": 7}, "")
FAILED_SPAN = Span("Checkpoint", 2_000, 2_100, {"checkpointId": 8}, "CHECKPOINT_EXPIRED")


def process_reading(values: Mapping[str, float]) -> GroupReading:
    variables = {"host": "h", "tm_id": "tm-1"}
    scope = ("h", "taskmanager", "tm-1")
    return GroupReading(GroupKind.TASK_MANAGER, variables, samples_of(values), scope)


def task_reading(values: Mapping[str, float], **more: str) -> GroupReading:
    variables = TASK | more
    scope = ("h", "taskmanager", "tm-1", "orders", variables["task_name"], "0")
    return GroupReading(GroupKind.TASK, variables, samples_of(values), scope)


def user_reading() -> GroupReading:
    """An operator whose user counts in a group of a key and a value."""
    group = MetricGroup()
    group.add_group("shop").add_group("tenant", "acme").counter("seen").inc(3)
    variables = TASK | {"operator_name": "Map"}
    scope = ("h", "taskmanager", "tm-1", "orders", "Map", "0")
    return GroupReading(GroupKind.OPERATOR, variables, list(group.samples()), scope)


def report(*groups: GroupReading, ended: Sequence[GroupReading] = ()) -> MetricReport:
    return MetricReport(5_000, groups, ended)


def names_in(found: MetricReport) -> list[str]:
    return [sample.name for group in found.groups for sample in group.samples]


def config(
    values: Mapping[str, str] | None = None, process_name: str = "tm-1", name: str = "mine"
) -> ReporterConfig:
    return ReporterConfig(name, values or {}, process_name)


class NotingReporter(MetricReporter):
    """Notes what it is given; `act` may raise, or wait."""

    def __init__(self, name: str = "noting", act: Callable[[], None] = lambda: None) -> None:
        super().__init__(config(name=name))
        self.act = act
        self.reports: list[MetricReport] = []
        self.spans: list[Span] = []
        self.is_closed = False

    def report(self, report: MetricReport) -> None:
        self.act()
        self.reports.append(report)

    def report_spans(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def close(self) -> None:
        self.is_closed = True


def values_of(readings: Sequence[GroupReading]) -> dict[str, float]:
    return {sample.name: sample.value for reading in readings for sample in reading.samples}
