"""A job that is to end with its client is given up when the client has been silent for too long, and not before."""

from collections.abc import Callable
from typing import cast

from headrace.cluster.dispatcher.client_heartbeats import ClientHeartbeats
from headrace.core.clock import ManualClock
from headrace.core.ids import JobId
from headrace.rpc.service import RpcService

JOB = JobId(b"j" * 16)
TIMEOUT_MS = 1_000


class Timer:
    """One scheduled action."""

    def __init__(self, due_ms: float, action: Callable[[], None]) -> None:
        self.due_ms, self.action, self.is_cancelled = due_ms, action, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Service:
    """The time of an RpcService, which passes by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.now_ms = 0.0
        self.timers: list[Timer] = []

    def schedule(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_ms + delay_ms, action))
        return self.timers[-1]

    def pass_to(self, time_ms: float) -> None:
        self.now_ms = time_ms
        for timer in [one for one in self.timers if one.due_ms <= time_ms]:
            self.timers.remove(timer)
            if not timer.is_cancelled:
                timer.action()


def followed() -> tuple[Service, ClientHeartbeats, list[JobId]]:
    service, gone = Service(), list[JobId]()
    heartbeats = ClientHeartbeats(cast("RpcService", service), gone.append)
    heartbeats.follow(JOB, TIMEOUT_MS)
    return service, heartbeats, gone


def test_a_client_that_is_never_heard_is_given_up_after_the_timeout() -> None:
    service, _, gone = followed()
    service.pass_to(TIMEOUT_MS - 1)
    assert gone == []
    service.pass_to(TIMEOUT_MS)
    service.pass_to(5 * TIMEOUT_MS)
    assert gone == [JOB]


def test_a_heartbeat_keeps_the_job_until_the_time_that_it_says() -> None:
    service, heartbeats, gone = followed()
    service.pass_to(900)
    heartbeats.heard(JOB, service.clock.now_ms() + 400)
    service.pass_to(1_299)
    assert gone == []
    service.pass_to(1_300)
    assert gone == [JOB]


def test_a_clock_that_goes_wrong_neither_ends_a_job_nor_keeps_it_for_ever() -> None:
    service, heartbeats, gone = followed()
    for said_ms in (-3_600_000, 3_600_000):
        heartbeats.heard(JOB, service.clock.now_ms() + said_ms)
        service.pass_to(service.now_ms + TIMEOUT_MS - 1)
        assert gone == []
    service.pass_to(service.now_ms + 1)
    assert gone == [JOB]


def test_jobs_that_have_ended_or_go_on_without_a_client_are_left_alone() -> None:
    service, heartbeats, gone = followed()
    heartbeats.forget(JOB)
    heartbeats.heard(JOB, service.clock.now_ms() + 10)
    other = JobId(b"o" * 16)
    heartbeats.follow(other, 0)
    heartbeats.heard(other, service.clock.now_ms() + 10)
    service.pass_to(10 * TIMEOUT_MS)
    assert gone == []
