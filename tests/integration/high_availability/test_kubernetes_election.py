"""Election through Kubernetes when the API server refuses, is slow, or loses its answers; and a job of two drivers.

The API server is testkit's stand-in: no real Kubernetes was tried.
"""

import random
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.high_availability.coordination import Coordination, open_coordination
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    LeadershipLostError,
)
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from testkit.kubernetes_api import KubernetesApi, kubernetes_api
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import NumbersJob, Rivals, rivals
from tests.integration.programs.s3_server import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

_P: Final = "high-availability.kubernetes.leader-election."
JOB: Final = JobId(b"j" * 16)
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/streams/leases/orders-leader"
POINTERS: Final = "/api/v1/namespaces/streams/configmaps/orders-job-graphs"


@pytest.fixture
def api() -> Generator[KubernetesApi]:
    with kubernetes_api() as one:
        yield one


def settings_of(folder: Path, api: KubernetesApi) -> dict[str, str]:
    file = folder / "kube-config"
    file.write_text(api.kube_config())
    return {
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": str(folder / "ha"),
        "headrace.checkpoint.key-file": str(folder / "key"),
        "kubernetes.config.file": str(file),
        "kubernetes.cluster-id": "orders",
        "kubernetes.namespace": "streams",
    }


class Leader:
    """One driver that leads."""

    def __init__(self, folder: Path, api: KubernetesApi, **options: str) -> None:
        settings = Settings(settings_of(folder, api) | options)
        self.coordination: Final[Coordination] = open_coordination(settings, random.Random(1))
        self.clock: Final = ManualClock(0)
        self.election: Final = LeaderElectionService(
            self.coordination.records, self.coordination.terms, self.clock, "default", "driver"
        )
        self.election.step()

    @property
    def leads(self) -> bool:
        try:
            self.election.validate()
        except LeadershipLostError:
            return False
        return True


@pytest.fixture
def leader(api: KubernetesApi, tmp_path: Path) -> Generator[Leader]:
    one = Leader(tmp_path, api)
    assert one.leads
    yield one
    one.coordination.close()


def test_the_lease_says_who_leads_and_how_often_that_has_changed(
    api: KubernetesApi, leader: Leader
) -> None:
    spec = api.objects[LEASE]["spec"]
    assert spec == {"holderIdentity": "driver", "leaseDurationSeconds": 15, "leaseTransitions": 1}


def test_a_renewal_that_fails_is_tried_again_while_the_lease_holds(
    api: KubernetesApi, leader: Leader
) -> None:
    api.fail_next(500, 500)
    leader.clock.advance_ms(5_000)
    leader.election.step()
    leader.election.step()
    leader.clock.advance_ms(4_000)
    leader.election.step()
    # 13 s after it took the lease: the third renewal came through.
    leader.clock.advance_ms(4_000)
    assert leader.leads


@pytest.mark.parametrize("status", [410, 429, 500, 503])
def test_a_leader_that_cannot_renew_gives_up_before_the_lease_ends(
    api: KubernetesApi, leader: Leader, status: int
) -> None:
    api.fail_next(*[status] * 20)
    leader.clock.advance_ms(9_000)
    leader.election.step()
    assert leader.leads
    leader.clock.advance_ms(1_000)
    assert not leader.leads


def test_a_renewal_whose_answer_is_lost_does_not_end_the_leadership(
    api: KubernetesApi, leader: Leader
) -> None:
    api.lose_answers()
    for _ in range(3):
        leader.clock.advance_ms(3_000)
        leader.election.step()
    leader.clock.advance_ms(3_000)
    assert leader.leads


def test_a_lease_that_somebody_deletes_is_lost(api: KubernetesApi, leader: Leader) -> None:
    del api.objects[LEASE]
    with pytest.raises(LeadershipLostError, match="deleted"):
        leader.election.step()


def test_the_epoch_after_a_deleted_lease_is_larger_than_that_of_the_pointers(
    api: KubernetesApi, leader: Leader, tmp_path: Path
) -> None:
    assert leader.coordination.pointers is not None
    leader.coordination.pointers.put(7, JOB, b"pointer")
    del api.objects[LEASE]
    second = Leader(tmp_path, api)
    # Whoever wrote the pointers may lead until the end of its lease.
    assert second.election.epoch == 0
    assert second.election.leader_text == "a process whose Lease was deleted leads it"
    second.clock.advance_ms(15_000)
    second.election.step()
    assert second.election.epoch == 8
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 8
    assert second.coordination.pointers is not None
    assert second.coordination.pointers.read_all(8) == {JOB.hex(): b"pointer"}
    with pytest.raises(LeadershipLostError, match="epoch 8"):
        leader.coordination.pointers.put(7, JOB, b"late")
    second.coordination.close()


def test_a_lease_that_somebody_edits_is_renewed_over_the_edit(
    api: KubernetesApi, leader: Leader
) -> None:
    api.objects[LEASE]["metadata"] |= {"resourceVersion": "4711", "labels": {"team": "orders"}}
    leader.election.step()
    leader.election.step()
    assert api.objects[LEASE]["metadata"]["labels"] == {"team": "orders"}
    assert leader.leads


def test_pointers_are_written_over_changes_of_others_and_through_lost_answers(
    api: KubernetesApi, leader: Leader
) -> None:
    pointers = leader.coordination.pointers
    assert pointers is not None
    pointers.put(1, JOB, b"first")
    api.objects[POINTERS]["metadata"]["annotations"]["team"] = "orders"
    api.conflict_next(2)
    pointers.put(1, JOB, b"again")
    api.conflict_next(5)
    with pytest.raises(CheckpointStorageError, match="keep changing it"):
        pointers.remove(1, JOB)
    api.lose_answers()
    with pytest.raises(CheckpointStorageError):
        pointers.put(1, JOB, b"second")
    assert pointers.read_all(1) == {JOB.hex(): b"second"}
    assert api.objects[POINTERS]["metadata"]["annotations"]["team"] == "orders"


def test_more_pointers_than_a_config_map_holds_are_refused(
    api: KubernetesApi, leader: Leader
) -> None:
    pointers = leader.coordination.pointers
    assert pointers is not None
    pointers.put(1, JOB, b"pointer")
    with pytest.raises(CheckpointStorageError, match="1 MiB"):
        pointers.put(1, JobId(b"k" * 16), b"p" * 1_000_000)
    assert pointers.read_all(1) == {JOB.hex(): b"pointer"}


def test_an_answer_that_does_not_come_is_given_up(api: KubernetesApi, tmp_path: Path) -> None:
    terms = {f"{_P}lease-duration": "900 ms", f"{_P}retry-period": "300 ms"}
    leader = Leader(tmp_path, api, **terms)
    api.may_answer.clear()
    with pytest.raises(CheckpointStorageError, match="orders-leader"):
        leader.coordination.records.newest_epoch()
    api.may_answer.set()
    leader.coordination.close()


@pytest.mark.parametrize("storage", ["folder", "s3"])
def test_a_standby_goes_on_with_the_job_of_a_killed_leader(
    api: KubernetesApi, tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    options = settings_of(tmp_path, api) | {
        f"{_P}lease-duration": "10 s", f"{_P}retry-period": "1 s",
    }  # fmt: skip
    del options["high-availability.storageDir"]
    store_uri = ""
    if storage == "s3":
        store: S3Server = request.getfixturevalue("object_store")
        store_uri = store.folder(tmp_path.name)
    pair: Rivals
    with rivals(tmp_path, store_uri) as pair:
        job = NumbersJob(tmp_path)
        first = pair.start("first", **options)
        first.wait_for("leads")
        second = pair.start("second", **options)
        first.say("submit", str(job.file))
        first.wait_for("submitted")
        job.await_begin()
        second.await_standby()
        assert job.job_id.hex() in api.objects[POINTERS]["data"]
        assert pair.newest_checkpoint(job), "no checkpoint lies in its storage"
        first.kill()
        second.wait_for("leads")
        second.say("result", str(job.job_id))
        assert second.wait_for("result")["status"] == "FINISHED"
        assert job.output() == job.expected
        pair.assert_forgotten(job)
        wait_until(lambda: not api.objects[POINTERS].get("data"), 60, "no pointer to the job")
