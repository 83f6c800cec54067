"""Options of slots on real TaskManager processes: bounds, spares, spreading, blocked hosts, quotas and locality."""

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.gateways.job_master import JobDetails
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import TaskManagerProcess, process_cluster
from tests.integration.programs.process_jobs import BOUNDED, ProcessJobs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

HOST, OTHER = "127.0.0.1", "127.0.0.2"


class SlotCluster(ProcessJobs):
    """Jobs whose tasks tell in which process they are."""

    def submit_telling(
        self, folder: Path, parallelism: int, settings: Mapping[str, str] | None = None
    ) -> JobId:
        folder.mkdir()
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        source = DataGeneratorSource(
            lambda index: index, type_info=Types.LONG(), rows_per_second=100
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.rebalance().map(telling(folder), Types.LONG()).sink_to(DiscardingSink())
        job_id = JobId.generate(system_random())
        given = Settings({**BOUNDED, **(settings or {})})
        graph = generate_job_graph(env.get_stream_graph(), job_id, given)
        self.handle.submit(graph)
        return job_id

    def details(self, job_id: JobId) -> JobDetails:
        return self.handle.call(self.handle.dispatcher.request_job_details(job_id))

    def registered(self) -> set[str]:
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return {str(one.resource_id) for one in overview.task_managers}

    def free(self) -> set[str]:
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return {str(one.resource_id) for one in overview.task_managers if one.free_slot_count}

    def named(self, name: str) -> TaskManagerProcess:
        [found] = [one for one in self.driver.live if one.name == name]
        return found


def telling(folder: Path) -> Callable[[int], int]:
    path = str(folder)

    def tell(value: int) -> int:
        open(f"{path}/{os.getpid()}", "wb").close()
        return value

    return tell


def processes(folder: Path) -> set[int]:
    """Processes in which tasks of the job have worked."""
    return {int(file.name) for file in folder.iterdir()}


@contextlib.contextmanager
def cluster(
    folder: Path, count: int, settings: Mapping[str, str], hosts: Sequence[str] = (HOST,)
) -> Generator[SlotCluster, None, None]:
    (folder / "scratch").mkdir()
    with process_cluster(folder / "scratch", count, {**BOUNDED, **settings}, hosts=hosts) as (
        handle,
        driver,
    ):
        yield SlotCluster(handle, driver)


def test_no_more_slots_come_than_the_cluster_may_have(tmp_path: Path) -> None:
    with cluster(tmp_path, 4, {"slotmanager.number-of-slots.max": "2"}) as one:
        narrow = one.submit_telling(tmp_path / "narrow", 2)
        wait_until(lambda: one.runs(narrow), what="a job of two slots runs")
        wide = one.submit_telling(tmp_path / "wide", 3, {"slot.request.timeout": "1 s"})
        wait_until(lambda: one.details(wide).failure is not None, what="the wait is over")
        failure = one.details(wide).failure
        assert failure is not None
        assert "slotmanager.number-of-slots.max allows at most 2 slot(s)" in failure.text
        assert len(one.driver.live) == 2


def test_a_spare_task_manager_takes_the_place_of_one_that_is_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, 4, {"slotmanager.redundant-taskmanager-num": "1"}) as one:
        job = one.submit_telling(tmp_path / "job", 1)
        wait_until(lambda: len(one.free()) == 1, what="one that is idle")
        wait_until(lambda: one.runs(job), what="the job runs")
        [used], [spare] = one.held_by(job), one.free()
        spare_pid = one.named(spare).pid
        one.named(used).kill()
        wait_until(lambda: one.held_by(job) == {spare}, what="the job takes the spare one")
        wait_until(lambda: spare_pid in processes(tmp_path / "job"), what="the job works there")
        assert one.named(spare).pid == spare_pid
        wait_until(lambda: len(one.free() - {spare}) == 1, what="another spare one")


@pytest.mark.parametrize(("mode", "count"), [("NONE", 1), ("SLOTS", 2)])
def test_slots_are_taken_of_one_task_manager_or_spread_out(
    tmp_path: Path, mode: str, count: int
) -> None:
    settings = {
        "taskmanager.load-balance.mode": mode,
        "taskmanager.numberOfTaskSlots": "2",
        "headrace.taskmanager.fixed-pool.size": "2",
    }
    with cluster(tmp_path, 2, settings) as one:
        wait_until(lambda: len(one.free()) == 2, what="both TaskManagers")
        job = one.submit_telling(tmp_path / "job", 2)
        wait_until(lambda: one.runs(job), what="the job runs")
        assert len(one.held_by(job)) == count
        wait_until(lambda: len(processes(tmp_path / "job")) == count, what="its tasks work")


def test_a_host_that_loses_task_managers_again_and_again_serves_what_no_other_can(
    tmp_path: Path,
) -> None:
    settings = {
        "headrace.blocklist.lost-task-managers": "2",
        "headrace.taskmanager.fixed-pool.size": "2",
    }
    with cluster(tmp_path, 2, settings, (HOST, OTHER)) as one:

        def lose(host: str) -> None:
            """Have a host lose its TaskManager, and wait for the next one there."""
            wait_until(lambda: len(one.free()) == 2, what="both TaskManagers")
            [lost] = one.driver.on_host(host)
            lost.kill()
            wait_until(lambda: lost.name not in one.registered(), what="its loss")
            wait_until(lambda: len(one.free()) == 2, what="its successor")

        # The last loss is of the other host, whose TaskManager would therefore come last.
        for host in (OTHER, OTHER, HOST):
            lose(host)
        first = one.submit_telling(tmp_path / "first", 1)
        wait_until(lambda: one.runs(first), what="the first job runs")
        assert one.held_by(first) == {each.name for each in one.driver.on_host(HOST)}
        second = one.submit_telling(tmp_path / "second", 1)
        wait_until(lambda: one.runs(second), what="the second job runs, where there is room")
        assert one.held_by(second) == {each.name for each in one.driver.on_host(OTHER)}


def test_a_job_above_the_quota_is_refused_and_another_one_runs(tmp_path: Path) -> None:
    with cluster(tmp_path, 4, {"headrace.session.slots-per-job-max": "2"}) as one:
        with pytest.raises(
            HeadraceError, match="needs 3 slots, but a job of this cluster may use only 2"
        ):
            one.submit_telling(tmp_path / "wide", 3)
        job = one.submit_telling(tmp_path / "narrow", 2)
        wait_until(lambda: one.runs(job), what="the job within the quota runs")
        assert len(one.held_by(job)) == 2


def test_subtasks_come_back_to_the_process_that_has_their_state(tmp_path: Path) -> None:
    settings = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.local-backup.enabled": "true",
        "execution.state-recovery.from-local": "true",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    with cluster(tmp_path, 3, {"headrace.taskmanager.fixed-pool.size": "3"}) as one:
        wait_until(lambda: len(one.free()) == 3, what="all TaskManagers")
        job = one.submit_telling(tmp_path / "job", 2, settings)
        wait_until(lambda: one.runs(job), what="the job runs")
        wait_until(lambda: one.details(job).checkpoints.counts.completed > 1, what="a checkpoint")

        def places() -> dict[tuple[str, int], str]:
            return {
                (vertex.name, subtask.subtask_index): str(subtask.resource_id)
                for vertex in one.details(job).vertices
                for subtask in vertex.subtasks
            }

        before = places()
        [lost, kept] = sorted(one.held_by(job))
        one.named(lost).kill()
        wait_until(lambda: lost not in one.held_by(job) and one.runs(job), what="a restart")
        after = places()
        stayed = {where for where, name in before.items() if name == kept}
        assert stayed
        assert {where for where, name in after.items() if name == kept} == stayed
        assert one.details(job).status is JobStatus.RUNNING
