"""Coordination: the files or service by which drivers of a cluster elect their leader (`high-availability.type`)."""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, SHARED_FILES
from headrace.checkpoint.storage.file_systems import absolute_uri, child_uri, creates_atomically
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cluster.high_availability.job_graph_store import JobGraphPointers
from headrace.cluster.high_availability.kubernetes.kubernetes_client import KubernetesClient
from headrace.cluster.high_availability.kubernetes.kubernetes_leader import (
    KubernetesLeader,
    KubernetesPointers,
    kubernetes_terms,
)
from headrace.cluster.high_availability.leader_files import LeaderFiles
from headrace.cluster.high_availability.leader_records import LeaderRecords
from headrace.cluster.high_availability.lease import LeaseTerms
from headrace.cluster.high_availability.options import (
    HIGH_AVAILABILITY_TYPE,
    KUBERNETES,
    STORAGE_DIR,
    ZOOKEEPER,
    cluster_id,
    high_availability_type,
)
from headrace.cluster.high_availability.zookeeper.zookeeper_client import ZooKeeperClient
from headrace.cluster.high_availability.zookeeper.zookeeper_leader import (
    ZooKeeperLeader,
    ZooKeeperPointers,
    zookeeper_terms,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import SeededRandom
from headrace.core.redaction import shown_uri


@dataclass(frozen=True)
class Coordination:
    """Records and terms of an election.

    `pointers`: pointers to stored job graphs; None if the files themselves list the jobs.

    `close` ends the connection to a service, if there is one. Idempotent.
    """

    records: LeaderRecords
    terms: LeaseTerms
    pointers: JobGraphPointers | None = None
    close: Callable[[], None] = lambda: None


def open_coordination(settings: Settings, random: SeededRandom) -> Coordination:
    """Open the coordination that the settings name.

    ConfigurationError if they are invalid, or an error of the service.
    """
    name, key = cluster_id(settings), metadata_key(settings)
    kind = high_availability_type(settings)
    if kind == ZOOKEEPER:
        client = ZooKeeperClient(settings, name)
        leader = ZooKeeperLeader(client, key)
        return Coordination(
            leader, zookeeper_terms(settings), ZooKeeperPointers(client), client.close
        )
    if kind == KUBERNETES:
        terms = kubernetes_terms(settings)
        api = KubernetesClient(settings, name, terms.renew_deadline_ms / 2000)
        lease = KubernetesLeader(api, key, terms)
        return Coordination(lease, terms, KubernetesPointers(api), api.close)
    files = LeaderFiles(
        child_uri(storage_folder(settings), "leader"),
        name,
        key,
        random,
        is_shared=settings.get_option(SHARED_FILES),
    )
    return Coordination(files, LeaseTerms.from_settings(settings))


def storage_folder(settings: Settings) -> str:
    """Return the folder of the cluster in the storage. ConfigurationError if the settings name none."""
    directory = settings.get_option(STORAGE_DIR)
    if not directory:
        raise ConfigurationError(
            HIGH_AVAILABILITY_TYPE.key,
            high_availability_type(settings),
            f"it needs a folder that all drivers can access: set {STORAGE_DIR.key}",
        )
    return child_uri(absolute_uri(directory), cluster_id(settings))


def check_storage(settings: Settings) -> None:
    """Check that drivers can rely on the storage; an object store is tested with requests.

    ConfigurationError if the storage is unsuitable; S3ClientMissingError if no client is installed;
    CheckpointStorageError if it does not answer.
    """
    if not creates_atomically(child_uri(storage_folder(settings), "leader")):
        raise ConfigurationError(
            STORAGE_DIR.key,
            shown_uri(settings.get_option(STORAGE_DIR)),
            "files are not created atomically there, so two drivers could lead at the same time: set a folder of this "
            "machine, a mounted shared one (NFS, CephFS), or one in an S3 store that supports If-None-Match and "
            f"If-Match; checkpoints may still be kept elsewhere ({CHECKPOINT_DIRECTORY.key})",
        )
