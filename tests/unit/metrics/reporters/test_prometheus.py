"""PrometheusReporter: Flink's names on a page, and who may read it."""

import contextlib
import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.clock import ManualClock
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.metrics.groups import MetricGroup
from headrace.metrics.readings import GroupReading, MetricReport
from headrace.metrics.reporters import prometheus
from headrace.metrics.reporters.prometheus import MetricFamilies, PrometheusReporter
from testkit.waiting import wait_until
from tests.unit.metrics.reporters.reports import (
    config,
    process_reading,
    report,
    task_reading,
    user_reading,
)

Sample = tuple[str, dict[str, str], float]


class Process:
    """Groups that a reporter reads; they may be changed."""

    def __init__(self, *groups: GroupReading) -> None:
        self.groups: tuple[GroupReading, ...] = groups
        self.read_count = 0

    def read(self) -> MetricReport:
        self.read_count += 1
        return MetricReport(0, self.groups)


@contextmanager
def opened(
    process: Process, values: Mapping[str, str] | None = None, clock: ManualClock | None = None
) -> Iterator[PrometheusReporter]:
    reporter = PrometheusReporter(config({"port": "0", **(values or {})}), clock or ManualClock())
    reporter.open(process.read)
    try:
        yield reporter
    finally:
        reporter.close()


def get(
    reporter: PrometheusReporter, host: str | None = None, method: str = "GET"
) -> http.client.HTTPResponse:
    assert reporter.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", reporter.port, timeout=20)
    connection.request(method, "/metrics", headers={} if host is None else {"Host": host})
    return connection.getresponse()


def page(reporter: PrometheusReporter) -> list[Sample]:
    response = get(reporter)
    assert response.status == 200
    text = response.read().decode()
    return [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def test_metrics_have_the_names_and_labels_of_flinks_reporter() -> None:
    with opened(
        Process(
            process_reading({"Status.JVM.Memory.Heap.Used": 7}),
            task_reading({"numRecordsIn": 3}),
            user_reading(),
        )
    ) as reporter:
        found = page(reporter)
    process = {"host": "h", "tm_id": "tm_1"}
    task = process | {"job_name": "orders", "task_name": "count", "subtask_index": "0"}
    assert found == [
        ("flink_taskmanager_Status_JVM_Memory_Heap_Used", process, 7),
        ("flink_taskmanager_job_task_numRecordsIn", task, 3),
        (
            "flink_taskmanager_job_task_operator_shop_tenant_seen",
            task | {"operator_name": "Map", "tenant": "acme"},
            3,
        ),
    ]


def test_subtasks_of_one_name_are_one_family() -> None:
    groups = [task_reading({"numRecordsIn": n}, subtask_index=str(n)) for n in range(3)]
    (family,) = MetricFamilies(filters_values=True).of(groups)
    assert [sample.value for sample in family.samples] == [0, 1, 2]


def test_a_histogram_is_a_summary_with_quantiles_and_its_extremes_are_gauges() -> None:
    group = MetricGroup()
    latency = group.histogram("latency", 100)
    for value in range(1, 101):
        latency.update(value)
    reading = replace(task_reading({}), samples=tuple(group.samples()))
    families = {each.name: each for each in MetricFamilies(filters_values=True).of([reading])}
    name = "flink_taskmanager_job_task_latency"
    assert families[name].type == "summary"
    found = {
        (sample.name, sample.labels.get("quantile")): sample.value
        for sample in families[name].samples
    }
    assert found[f"{name}_count", None] == 100
    assert found[name, "0.5"] == 50.5
    assert {quantile for _, quantile in found} == {
        None, "0.5", "0.75", "0.9", "0.95", "0.98", "0.99", "0.999",
    }  # fmt: skip
    assert families[f"{name}_max"].type == "gauge"
    assert families[f"{name}_max"].samples[0].value == 100


def test_of_two_values_with_the_same_labels_the_later_one_counts() -> None:
    groups = [task_reading({"numRecordsIn": 1}), task_reading({"numRecordsIn": 2})]
    (family,) = MetricFamilies(filters_values=True).of(groups)
    assert [sample.value for sample in family.samples] == [2]


def test_names_of_labels_are_such_as_prometheus_takes() -> None:
    (family,) = MetricFamilies(filters_values=False).of(
        [task_reading({"numRecordsIn": 1}, **{"9 lives": 'a "b"\n'})]
    )
    assert family.samples[0].labels["_9_lives"] == 'a "b"\n'


def test_a_group_that_ended_is_on_the_next_page_and_on_no_other() -> None:
    clock = ManualClock()
    with opened(Process(), clock=clock) as reporter:
        reporter.report(report(ended=[task_reading({"numRecordsIn": 9})]))
        assert [value for _, _, value in page(reporter)] == [9]
        clock.advance_ms(1_000)
        assert page(reporter) == []


def test_a_page_is_made_at_most_once_a_second() -> None:
    clock, process = ManualClock(), Process(task_reading({"numRecordsIn": 1}))
    with opened(process, clock=clock) as reporter:
        first = page(reporter)
        process.groups = (task_reading({"numRecordsIn": 2}),)
        assert page(reporter) == first and process.read_count == 1
        clock.advance_ms(1_000)
        assert [value for _, _, value in page(reporter)] == [2]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:9249", 200), ("localhost", 200), ("[::1]:1", 200), ("evil.example:9249", 403)],
)
def test_on_loopback_only_requests_for_this_host_are_answered(host: str, status: int) -> None:
    with opened(Process()) as reporter:
        assert get(reporter, host).status == status


def test_beyond_loopback_it_listens_only_where_its_own_setting_says_so() -> None:
    process = Process()
    with opened(process, {"bind-address": "0.0.0.0"}) as reporter:
        assert get(reporter, "driver.example:9249").status == 200


def test_each_process_takes_the_first_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with opened(Process(), {"port": f"{port},0"}) as reporter:
            assert reporter.port not in (None, 0, port)


def test_where_all_ports_are_taken_the_error_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        reporter = PrometheusReporter(config({"port": port}))
        with pytest.raises(PortInUseError, match=r"'metrics\.reporter\.mine\.port'"):
            reporter.open(Process().read)


def test_a_port_that_cannot_be_is_refused_as_the_reporter_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.mine\.port"):
        PrometheusReporter(config({"port": "many"}))


def test_connections_that_take_for_ever_to_ask_do_not_keep_others_from_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Who sends a byte now and then is never silent for this long.
    monkeypatch.setattr(prometheus._Handler, "timeout", 300.0)
    clock = ManualClock()
    with opened(Process(), clock=clock) as reporter:

        def connect() -> socket.socket:
            assert reporter.port is not None
            connection = socket.create_connection(("127.0.0.1", reporter.port), timeout=60)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            return connection

        def is_full() -> bool:
            with connect() as one, contextlib.suppress(ConnectionError):
                one.settimeout(0.05)
                try:
                    return one.recv(1) == b""
                except TimeoutError:
                    return False
            return True

        slow = [connect() for _ in range(8)]
        wait_until(is_full)
        clock.advance_ms(10_000)
        for one in slow:
            assert one.recv(1) == b""
            one.close()
        wait_until(lambda: not is_full())
        assert get(reporter).status == 200


def test_after_the_end_nobody_answers() -> None:
    with opened(Process()) as reporter:
        assert get(reporter).status == 200
    with pytest.raises(ConnectionRefusedError):
        get(reporter)
