"""StageResources: cores and external resources, such as GPUs, that Spark reserves for each subtask of a stage.

A stage takes the resources of its slot sharing group, else those that the settings give every TaskManager. If Spark
can start executors of any size, a group's stage runs in executors with the group's memory, else in the existing ones.
Source: Spark MapInBatchExec (its profile), DAGScheduler.mergeResourceProfilesForStage.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.spark.batch.stage_memory import memory_settings
from headrace.spark.workers.worker_sizes import WorkerSizes

_NO_EFFECT: Final = "of slot sharing groups (%s) have no effect in BATCH mode"


@dataclass(frozen=True)
class StageResources:
    """`external`: the external resources of each subtask whose group names none."""

    sizes: WorkerSizes
    external: tuple[tuple[str, int], ...] = ()

    def refuse(self, graph: JobGraph) -> None:
        """Raise ProgramError for a group that requests resources that no executor has."""
        for group in graph.slot_resources:
            wanted = self._wanted(graph, group)
            if self.sizes.kind.is_single_process and not wanted.external_resources:
                continue
            refusal = self.sizes.refusal_of(wanted, UNSPECIFIED)
            if refusal:
                raise ProgramError(
                    f"slot sharing group '{group}' requests {wanted} for each of its subtasks, which Spark cannot "
                    f"provide in BATCH mode: {refusal}"
                )

    def idle(self, graph: JobGraph) -> str:
        """Return which resources of groups have no effect, and why; empty if all have an effect."""
        names = ", ".join(sorted(graph.slot_resources))
        if not names or self.sizes.grows_on_demand:
            return ""
        if self.sizes.kind.is_single_process:
            return (
                f"resources {_NO_EFFECT % names} on one host, where Spark has no resource profiles"
            )
        if not any(one.memory_bytes for one in graph.slot_resources.values()):
            return ""
        return (
            f"memory {_NO_EFFECT % names} where Spark starts no executors on demand: their subtasks run in the "
            f"existing ones"
        )

    def profile_of(self, graph: JobGraph, vertex: JobVertex) -> Any:
        """Return Spark's ResourceProfile of a vertex's stage; None for Spark's default."""
        return self.sizes.spark_profile_of(self._wanted(graph, vertex.slot_sharing_group))

    def settings_of(self, graph: JobGraph, vertex: JobVertex) -> dict[str, str]:
        """Return settings for the memory of a vertex's Python workers, if the group has its own."""
        wanted = self._wanted(graph, vertex.slot_sharing_group)
        return memory_settings(Settings(self.sizes.settings_of(wanted)))

    def stands_alone(self, graph: JobGraph, vertex: JobVertex, others: Iterable[JobVertex]) -> bool:
        """Return whether a vertex needs a shuffle between its rows and those of others that are read together.

        Spark computes inputs that are read together in one stage, which has one profile.
        """
        own = self._wanted(graph, vertex.slot_sharing_group)
        wanted = (self._wanted(graph, other.slot_sharing_group) for other in others)
        return self.sizes.spark_profile_of(own) is not None and any(one != own for one in wanted)

    def _wanted(self, graph: JobGraph, group: str) -> ResourceProfile:
        wanted = graph.slot_resources.get(group)
        if wanted is None:
            return ResourceProfile(external_resources=self.external)
        if self.sizes.grows_on_demand:
            return wanted
        return ResourceProfile(wanted.cpu_cores, external_resources=wanted.external_resources)
