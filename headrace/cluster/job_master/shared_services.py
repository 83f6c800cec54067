"""What all JobMasters of one cluster share: the Dispatcher hands it to each. Source: Flink JobManagerSharedServices."""

from dataclasses import dataclass

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.shuffle.shuffle_master import ShuffleMaster
from headrace.core.ids import ResourceManagerId
from headrace.core.threads import BlockingRunner, run_in_thread
from headrace.gateways.blob_server import BlobServerGateway


@dataclass(frozen=True)
class JobManagerSharedServices:
    """`run_blocking` runs what waits for files or for other systems beside the main thread."""

    resource_manager_address: str
    resource_manager_id: ResourceManagerId
    coordinator_factories: CoordinatorFactories
    blob_server: BlobServerGateway
    shuffle_master: ShuffleMaster
    run_blocking: BlockingRunner = run_in_thread
