"""WorkerSizes: the possible sizes of TaskManagers in a Spark application, and the Spark profile for each.

Spark gives a task cores and external resources of existing executors. It starts executors of another size, with
other memory, only with dynamic allocation.
Source: Spark ResourceProfileManager (isSupported), ExecutorResourceRequests; Flink TaskExecutorProcessSpec.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from headrace.cluster.task_executor.memory_limit import MEMORY_LIMIT
from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.core.config import Settings
from headrace.core.process.memory_parts import (
    FLINK_MEMORY,
    MANAGED_MEMORY,
    PROCESS_MEMORY,
    TASK_HEAP,
    TASK_OFF_HEAP,
    MemoryParts,
    memory_parts,
)
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.master import MasterKind
from headrace.spark.workers.worker_process import size_bytes

_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_EXECUTOR_MEMORY: Final = "spark.executor.memory"
_EXECUTOR_MEMORY_DEFAULT: Final = "1g"
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True)
class WorkerSizes:
    """Sizes of TaskManagers; `settings` are those of the usual size, `conf` is Spark's running configuration."""

    settings: Settings
    conf: Mapping[str, str]
    kind: MasterKind
    _made: dict[ResourceProfile, Any] = field(
        default_factory=dict[ResourceProfile, Any], init=False, repr=False, compare=False
    )

    @property
    def grows_on_demand(self) -> bool:
        """Return whether Spark starts executors of any size for waiting tasks."""
        if self.kind.is_single_process:
            return False
        return self.conf.get(_DYNAMIC, "false").lower() == "true"

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why no TaskManager can have these resources, and what to do; empty if one can.

        `usual` are the resources of a TaskManager of the usual size.
        """
        if profile.is_unspecified:
            return ""
        if self.kind.is_single_process:
            return (
                f"on {self.conf.get('spark.master', '')} all TaskManagers have the same size, as Spark has no "
                f"resource profiles there: run on a cluster (--master local-cluster[executors,cores,MiB] on this "
                f"host), raise "
                f"{PROCESS_MEMORY.key} or {CPU_CORES.key}"
            )
        for name, amount in profile.external_resources:
            refusal = self._refusal_of_external(name, amount)
            if refusal:
                return refusal
        if self.grows_on_demand:
            return ""
        cores = self._executor_cores
        if cores is not None and ceil(profile.cpu_cores) > cores:
            return f"an executor has {cores} core(s): raise spark.executor.cores, or set {_DYNAMIC}=true"
        if not usual.matches(
            ResourceProfile(
                task_heap_bytes=profile.task_heap_bytes,
                task_off_heap_bytes=profile.task_off_heap_bytes,
                managed_bytes=profile.managed_bytes,
            )
        ):
            return (
                f"Spark starts executors with more memory only where {_DYNAMIC}=true: set it, raise "
                f"{PROCESS_MEMORY.key} for all TaskManagers"
            )
        return ""

    def lacking(self, wanted: Mapping[ResourceProfile, int]) -> str:
        """Return which external resource the slots need more of than all executors have, if their number is fixed."""
        if self.kind.executor_count is None:
            return ""
        needed: Counter[str] = Counter()
        for profile, count in wanted.items():
            for name, amount in profile.external_resources:
                needed[name] += amount * count
        for name, amount in needed.items():
            has = int(self.conf.get(f"spark.executor.resource.{name}.amount", "0"))
            total = has * self.kind.executor_count
            # If a slot takes more than an executor has, the ResourceManager names its group instead.
            if amount > total and all(p.amount_of(name) <= has for p in wanted):
                return f"the job's slots need {amount} {name} in total, but there are only {total}"
        return ""

    def settings_of(self, profile: ResourceProfile) -> dict[str, str]:
        """Return the settings of a TaskManager of that size that replace the usual ones: one slot with everything."""
        own = {CPU_CORES.key: f"{profile.cpu_cores:g}", NUMBER_OF_TASK_SLOTS.key: "1"}
        if self.grows_on_demand and profile.memory_bytes:
            own |= _memory_settings(profile)
            parts = self._parts_of(profile)
            own |= {
                PROCESS_MEMORY.key: str(parts.process_bytes),
                FLINK_MEMORY.key: str(parts.flink_bytes),
            }
            # A limit that is not set equals the size of the process, which differs here.
            limit = self.settings.get_option(MEMORY_LIMIT)
            if limit is None or limit == self.settings.get_option(PROCESS_MEMORY):
                own[MEMORY_LIMIT.key] = str(parts.process_bytes)
        return own

    def spark_profile_of(self, profile: ResourceProfile) -> Any:
        """Return Spark's ResourceProfile for a task of that size.

        None if the default suffices, or Spark has no profiles.
        """
        is_plain = ceil(profile.cpu_cores) <= 1 and not profile.external_resources
        if self.kind.is_single_process or (is_plain and not profile.memory_bytes):
            return None
        if profile not in self._made:
            # One Spark profile per worker profile, as Spark never removes profiles.
            self._made[profile] = self._spark_profile(profile)
        return self._made[profile]

    def _spark_profile(self, profile: ResourceProfile) -> Any:
        cores = max(1, ceil(profile.cpu_cores))
        task = TaskResourceRequests().cpus(cores)
        for name, amount in profile.external_resources:
            task = task.resource(name, amount)
        builder = ResourceProfileBuilder().require(task)
        # Without memory it is the usual size, for which existing executors have room.
        if self.grows_on_demand and profile.memory_bytes:
            builder = builder.require(self._executor_of(profile, cores))
        return builder.build

    def _executor_of(self, profile: ResourceProfile, cores: int) -> ExecutorResourceRequests:
        """Return an executor for one TaskManager: its JVM only forwards bytes, and its worker has the memory."""
        process = self._parts_of(profile).process_bytes
        heap = size_bytes(self.conf.get(_EXECUTOR_MEMORY, _EXECUTOR_MEMORY_DEFAULT))
        executor = ExecutorResourceRequests().cores(cores)
        if self.conf.get("spark.master", "").startswith("spark://"):
            # A standalone master counts only this memory.
            executor = executor.memory(f"{(heap + process) // _MEBIBYTE}m")
        else:
            executor = executor.memory(f"{heap // _MEBIBYTE}m")
            executor = executor.memoryOverhead(f"{process // _MEBIBYTE}m")
        for name, amount in profile.external_resources:
            prefix = f"spark.executor.resource.{name}"
            executor = executor.resource(
                name,
                amount,
                self.conf.get(f"{prefix}.discoveryScript", ""),
                self.conf.get(f"{prefix}.vendor", ""),
            )
        return executor

    def _parts_of(self, profile: ResourceProfile) -> MemoryParts:
        usual = {
            key: value
            for key, value in self.settings.items()
            if key not in (PROCESS_MEMORY.key, FLINK_MEMORY.key)
        }
        return memory_parts(Settings({**usual, **_memory_settings(profile)}), 0)

    def _refusal_of_external(self, name: str, amount: int) -> str:
        prefix = f"spark.executor.resource.{name}"
        has = self.conf.get(f"{prefix}.amount", "0")
        script = self.conf.get(f"{prefix}.discoveryScript", "")
        if self.grows_on_demand:
            if script:
                return ""
            return (
                f"set {prefix}.discoveryScript to a program that finds them, and {prefix}.amount to the number that "
                f"executors of the usual size have, or 0"
            )
        if int(has) >= amount:
            return ""
        return (
            f"an executor has {has if has != '0' else 'none'}: set {prefix}.amount to {amount} or more, and "
            f"{prefix}.discoveryScript to a program that finds them"
        )

    @property
    def _executor_cores(self) -> int | None:
        if self.kind.cores_per_executor is not None:
            return self.kind.cores_per_executor
        cores = self.conf.get("spark.executor.cores", "")
        return int(cores) if re.fullmatch(r"[0-9]+", cores) else None


def _memory_settings(profile: ResourceProfile) -> dict[str, str]:
    return {
        TASK_HEAP.key: str(profile.task_heap_bytes),
        TASK_OFF_HEAP.key: str(profile.task_off_heap_bytes),
        MANAGED_MEMORY.key: str(profile.managed_bytes),
    }
