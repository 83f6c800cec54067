"""Requests of a job for slots over time: only the newest times out, and only while it waits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from headrace.cluster.blob.virtual_environment import INSTALL_TIMEOUT
from headrace.cluster.job_master.connections.options import SLOT_IDLE_TIMEOUT, SLOT_REQUEST_TIMEOUT
from headrace.cluster.job_master.connections.slot_requests import SlotRequests
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.slots.slot_pool import PhysicalSlot, SlotPool
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.messages import SlotOffer
from headrace.graph.job_graph import JobGraph
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import (
    SLOT_PROFILE,
    TM_1,
    allocation,
    job_graph,
    vertex,
)

REQUEST_MS, IDLE_MS = 10_000, 4_000
SETTINGS = Settings(
    {SLOT_REQUEST_TIMEOUT.key: f"{REQUEST_MS} ms", SLOT_IDLE_TIMEOUT.key: f"{IDLE_MS} ms"}
)


def two_tasks() -> JobGraph:
    source = vertex(1, 1)
    operator = msgspec.structs.replace(source.operators[0], location="program.py, line 3")
    source = msgspec.structs.replace(source, operators=(operator,))
    return job_graph((source, vertex(2, 1)))


@dataclass
class World:
    """Everybody around SlotRequests, as far as it looks at them."""

    clock: ManualClock = field(default_factory=ManualClock)
    pool: SlotPool = field(default_factory=SlotPool)
    is_waiting_for_slots: bool = True
    declared_count: int = 0
    failures: list[Failure] = field(default_factory=list[Failure])
    freed: list[PhysicalSlot] = field(default_factory=list[PhysicalSlot])
    graph: JobGraph = field(default_factory=two_tasks)

    def __post_init__(self) -> None:
        self.loop = VirtualLoop(self.clock)
        me = cast(Any, self)
        self.slots = SlotRequests(
            me,
            self.graph,
            self.pool,
            me,
            me,
            SETTINGS,
            is_waiting=lambda: self.is_waiting_for_slots,
            on_unavailable=self.failures.append,
        )

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> object:
        return self.loop.call_later(delay_ms / 1000, action)

    def spawn(self, coroutine: Any, name: str) -> object:
        return self.loop.create_task(coroutine, name=name)

    def declare(self) -> None:
        self.declared_count += 1

    async def explain(self) -> str:
        return "the host has no room"

    def free_slot(self, slot: PhysicalSlot, cause: str) -> None:
        self.freed.append(slot)

    def run_for(self, duration_ms: float) -> None:
        self.loop.run_for(duration_ms)

    def texts(self) -> list[str]:
        return [failure.error.text for failure in self.failures]


def test_slots_that_do_not_come_in_time_fail_the_job_with_what_is_missing() -> None:
    world = World()
    world.slots.request([ResourceProfile()])
    world.run_for(REQUEST_MS - 1)
    assert world.declared_count == 1 and world.failures == []
    world.run_for(2)
    (text,) = world.texts()
    assert "1 slot(s) for 'vertex 1' (program.py, line 3), 'vertex 2' did not" in text
    assert "the host has no room" in text
    world.loop.close()


def test_slots_that_came_do_not_time_out() -> None:
    world = World()
    world.slots.request([ResourceProfile()])
    world.is_waiting_for_slots = False
    world.run_for(REQUEST_MS * 2)
    assert world.failures == []
    world.loop.close()


def test_a_newer_request_has_its_whole_time() -> None:
    world = World()
    world.slots.request([ResourceProfile()])
    world.run_for(REQUEST_MS - 1)
    world.slots.request([ResourceProfile()])
    world.run_for(REQUEST_MS - 1)
    assert world.declared_count == 2 and world.failures == []
    world.run_for(2)
    assert len(world.failures) == 1
    world.loop.close()


def test_a_word_that_slots_cannot_come_fails_the_job_at_once_and_for_good() -> None:
    world = World()
    world.slots.cannot_come("two slots are missing")
    assert world.texts() == ["two slots are missing"]
    assert not world.failures[0].error.recoverable
    world.loop.close()


def test_a_word_that_slots_cannot_come_now_leaves_the_job_to_its_restart_strategy() -> None:
    world = World()
    world.slots.cannot_come("the disk of a host is full", recoverable=True)
    assert world.texts() == ["the disk of a host is full"]
    assert world.failures[0].error.recoverable
    world.loop.close()


def test_a_slot_that_nobody_needs_is_given_back_after_its_time() -> None:
    world = World()
    world.slots.declare([ResourceProfile()])
    world.pool.offer(TM_1, [SlotOffer(allocation(1), 0, SLOT_PROFILE)], 0)
    world.slots.declare(())
    world.slots.return_idle()
    assert world.freed == []
    world.run_for(IDLE_MS * 2)
    assert [slot.allocation_id for slot in world.freed] == [allocation(1)]
    world.loop.close()


def test_the_wait_is_longer_by_the_time_in_which_hosts_make_the_environment_of_the_job() -> None:
    graph = msgspec.structs.replace(two_tasks(), python_executable="environment:requirements@1")
    world = World(graph=graph)
    environment_ms = SETTINGS.duration_ms(INSTALL_TIMEOUT)
    world.slots.request([ResourceProfile()])
    world.run_for(REQUEST_MS + environment_ms - 1)
    assert world.failures == []
    world.run_for(2)
    (text,) = world.texts()
    assert text.endswith("the job's Python environment (headrace.python.requirements.timeout)")
    world.loop.close()
