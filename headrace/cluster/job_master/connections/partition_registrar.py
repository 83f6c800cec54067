"""PartitionRegistrar: registers one job's partitions at the shuffle master, and handles late or failing answers.

Runs on the JobMaster's main thread. Source: Flink Execution.registerProducedPartitions.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.options import PARTITION_REGISTER_TIMEOUT
from headrace.cluster.shuffle_master import (
    JobShuffleContext,
    PartitionRegistrationError,
    ShuffleMaster,
)
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, JobId
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ShuffleDescriptor,
)
from headrace.gateways.messages import ErrorInfo
from headrace.rpc.endpoint import RpcEndpoint

OnRegistered = Callable[[Sequence[ShuffleDescriptor], int], None]
OnFailed = Callable[[ExecutionAttemptId, ErrorInfo], None]


@dataclass(frozen=True)
class PartitionRegistration:
    """A partition to register at the shuffle master before its producer is deployed."""

    partition: PartitionDescriptor
    producer: ProducerDescriptor


class PartitionRegistrar:
    """Registers the partitions of one JobMaster. `on_lost(error)`: the shuffle master has lost all data of the job."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        shuffle_master: ShuffleMaster,
        job_id: JobId,
        settings: Settings,
        on_lost: Callable[[HeadraceError], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._shuffle_master: Final = shuffle_master
        self._job_id: Final = job_id
        self._timeout_s: Final = settings.duration_ms(PARTITION_REGISTER_TIMEOUT) / 1000
        self._on_lost: Final = on_lost

    def start(self) -> None:
        """Register the job at the shuffle master."""
        self._shuffle_master.register_job(JobShuffleContext(self._job_id, self._on_lost))

    def close(self) -> None:
        """Unregister the job, which has ended."""
        self._shuffle_master.unregister_job(self._job_id)

    def register(
        self,
        registrations: Sequence[PartitionRegistration],
        version: int,
        on_registered: OnRegistered,
        on_failed: OnFailed,
    ) -> None:
        """Register all partitions of the deployment `version`.

        Then call `on_registered(descriptors, version)`, in the order of `registrations`, or
        `on_failed(attempt_id, error)` for each attempt whose partition was not registered.
        """
        self._endpoint.spawn(
            self._register(registrations, version, on_registered, on_failed), "register partitions"
        )

    def release_externally(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        """Let the shuffle master delete external partitions."""
        if descriptors:
            self._shuffle_master.release_partitions_externally(descriptors)

    async def _register(
        self,
        registrations: Sequence[PartitionRegistration],
        version: int,
        on_registered: OnRegistered,
        on_failed: OnFailed,
    ) -> None:
        answers = await asyncio.gather(*(self._register_one(each) for each in registrations))
        descriptors = [each for each in answers if isinstance(each, ShuffleDescriptor)]
        if len(descriptors) == len(answers):
            on_registered(descriptors, version)
            return
        self.release_externally([each for each in descriptors if each.is_external])
        for registration, answer in zip(registrations, answers, strict=True):
            if isinstance(answer, HeadraceError):
                on_failed(registration.producer.attempt_id, error_info_of(answer))

    async def _register_one(
        self, registration: PartitionRegistration
    ) -> ShuffleDescriptor | HeadraceError:
        partition, producer = registration.partition, registration.producer
        text = f"{partition.partition_number} of {producer.attempt_id}"
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._shuffle_master.register_partition_with_producer(
                    self._job_id, partition, producer
                )
        except TimeoutError:
            reason = f"it did not answer within {self._timeout_s:g} s"
            return PartitionRegistrationError(text, reason)
        except HeadraceError as error:
            return error
        except Exception as error:
            # Any error of a plug-in fails the attempt, not the JobManager.
            return PartitionRegistrationError(text, f"{type(error).__name__}: {error}")
