"""Results that outlive their job, while messages are lost and TaskManagers, or the JobMaster, end amid promoting.

Whatever happens: once all is quiet, the ResourceManager lists whole data sets alone, each of which lies on live
TaskManagers; these keep nothing else; and nothing at all once everything was released.
"""

from pathlib import Path

import msgspec
import pytest

from headrace.core.ids import ClusterDataSetId, JobId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.graph.job_graph import JobGraph
from headrace.rpc.proxies import with_timeout
from testkit.simulation.lossy_network import LinkFaults
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import counting_job
from tests.simulation.scenario import SETTINGS
from tests.simulation.seeds import seeds

COUNT = 60
JOB_TIMEOUT_MS = 30_000
EVENTS = ("nothing", "kill", "kill later", "cut off", "end the JobMaster", "release")
SEEDS = seeds(60, quick_step=6)


class KeptResults:
    """One run: something happens in the moment in which a TaskManager has begun to keep results."""

    def __init__(self, seed: int, directory: Path) -> None:
        random = SeededRandom(seed ^ 0x9E2)
        self.event = random.choice(EVENTS)
        self.delay_ms = random.uniform(0, 300)
        loss = random.choice([0.0, 0.05, 0.3])
        self.simulation = SimulatedCluster(
            seed,
            settings=SETTINGS
            | {
                "io.tmp.dirs": str(directory),
                "resourcemanager.job.timeout": f"{JOB_TIMEOUT_MS} ms",
                "resourcemanager.taskmanager-timeout": "5 s",
            },
        )
        self.graph = persistent(self.simulation.new_job_id(), f"kept-{seed}")
        self.data_set = ClusterDataSetId(self.graph.job_id, self.graph.edges[0].data_set_id)
        self.has_happened = False
        # Not from the start: the job is to come so far.
        self.later_faults = LinkFaults(loss=loss, delay_min_ms=0.1, delay_max_ms=20)
        self.manager = with_timeout(
            self.simulation.cluster.resource_manager.self_gateway(ResourceManagerGateway), 60_000
        )

    def run(self) -> None:
        """Until the job has ended and everybody has had time to notice."""
        simulation = self.simulation
        simulation.submit(self.graph)
        self._watch()
        simulation.await_result(self.graph.job_id)
        simulation.run_for(JOB_TIMEOUT_MS)
        simulation.faults.set_faults(LinkFaults(delay_min_ms=0.1, delay_max_ms=5))
        simulation.run_for(4 * JOB_TIMEOUT_MS)

    def kept(self) -> dict[ResultPartitionId, str]:
        """What live TaskManagers keep."""
        return {
            each.partition_id: worker.worker_id.name
            for worker in self.simulation.driver.live_workers()
            for each in worker.executor._cluster_partitions.report().partitions
        }

    def faults(self) -> list[str]:
        """Everything that is not as it must be."""
        found: list[str] = []
        listed = self.simulation.loop.run_until(self.manager.list_data_sets())
        found += [f"{info} is not whole" for info in listed if not info.is_complete]
        kept = self.kept()
        places: dict[ResultPartitionId, str] = {}
        for info in listed:
            asked = self.manager.request_cluster_partitions(info.data_set)
            for each in self.simulation.loop.run_until(asked):
                places[each.partition_id] = str(each.stored_by)
        if places != kept:
            found.append(f"listed is {places}, kept {kept}")
        for info in listed:
            self.simulation.loop.run_until(self.manager.release_cluster_partitions(info.data_set))
        self.simulation.run_for(10_000)
        return [*found, *self.simulation.leaks()]

    def _watch(self) -> None:
        if not self.simulation.exchanges.has_finished_results and not self.kept():
            self.simulation.later(5, self._watch)
        elif not self.kept():
            self.simulation.faults.set_faults(self.later_faults)
            # The promotion of a result is over in some ms.
            self.simulation.later(0.5, self._watch)
        else:
            self.simulation.later(self.delay_ms if "later" in self.event else 0, self._happen)

    def _happen(self) -> None:
        self.has_happened = True
        simulation = self.simulation
        match self.event:
            case "kill" | "kill later":
                names = set(self.kept().values())
                for worker in simulation.driver.live_workers():
                    if worker.worker_id.name in names:
                        worker.die("killed by the test")
                        return
            case "cut off":
                simulation.cut_off_some_worker(15_000)
            case "end the JobMaster":
                job = simulation.cluster.dispatcher._jobs.find(self.graph.job_id)
                if job is not None:
                    job.job_master.close_async()
            case "release":
                simulation.cluster.dispatcher.spawn(
                    self.manager.release_cluster_partitions(self.data_set), "a client releases"
                )
            case _:
                pass


def persistent(job_id: JobId, name: str) -> JobGraph:
    graph = counting_job(job_id, name, count=COUNT, interval_ms=50, parallelism=3, settings={})
    kind = ResultPartitionType.BLOCKING_PERSISTENT
    edges = tuple(msgspec.structs.replace(edge, result_type=kind) for edge in graph.edges)
    return msgspec.structs.replace(graph, edges=edges)


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_data_sets_are_kept_and_nothing_else(seed: int, tmp_path: Path) -> None:
    run = KeptResults(seed, tmp_path)
    run.run()
    faults = run.faults()
    run.simulation.close()
    assert faults == [], failure_note(seed)(f"after '{run.event}'")


def test_each_kind_of_trouble_comes_while_results_are_promoted(tmp_path: Path) -> None:
    """Else the test above would show nothing of it."""
    missing = set(EVENTS)
    for seed in range(100):
        directory = tmp_path / str(seed)
        run = KeptResults(seed, directory)
        if run.event in missing:
            directory.mkdir()
            run.run()
            if run.has_happened:
                missing.discard(run.event)
        run.simulation.close()
        if not missing:
            break
    assert missing == set()
