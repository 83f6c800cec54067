"""ClusterDescriptor: which one a target needs, which cluster it finds and ends, and what it cannot start."""

import os
from pathlib import Path

import pytest

from headrace import ClusterClientFactory
from headrace.cli.daemon.daemon_cluster_descriptor import DaemonClusterDescriptor
from headrace.client.cluster_descriptor import ClusterDescriptor
from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph
from headrace.rest.client_errors import NoSuchClusterError
from headrace.rest.home.connections import ClusterConnection, write_connection
from tests.unit.rest.fake_cluster import fake_cluster


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))


@pytest.mark.parametrize("target", ["session", "application", "per-job", "local", "spark"])
def test_targets_with_clusters_of_their_own_have_a_descriptor_that_starts_them(target: str) -> None:
    factory = ClusterClientFactory({"execution.target": target})
    assert isinstance(factory.create_cluster_descriptor(), DaemonClusterDescriptor)


def test_a_remote_cluster_is_found_and_not_started() -> None:
    descriptor = ClusterClientFactory({"execution.target": "remote"}).create_cluster_descriptor()
    assert type(descriptor) is ClusterDescriptor
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), {})
    for deploy in (
        lambda: descriptor.deploy_session_cluster("nightly"),
        lambda: descriptor.deploy_application_cluster(Program(Path("program.py"))),
        lambda: descriptor.deploy_job_cluster("job", graph),
    ):
        with pytest.raises(ConfigurationError, match="set it to session, application or per-job"):
            deploy()
    descriptor.close()


def test_the_name_of_a_session_is_its_cluster_id() -> None:
    assert ClusterClientFactory({}).get_cluster_id() is None
    assert ClusterClientFactory({"headrace.session.name": "daily"}).get_cluster_id() == "daily"


def test_a_session_is_retrieved_by_its_name() -> None:
    descriptor = ClusterClientFactory({"execution.target": "session"}).create_cluster_descriptor()
    with pytest.raises(NoSuchClusterError):
        descriptor.retrieve("nightly")
    for port, name in ((8082, "nightly"), (8083, "daily")):
        address = f"http://127.0.0.1:{port}"
        write_connection(ClusterConnection(address, "t", os.getpid(), name, is_session=True))
    with descriptor.retrieve("daily") as cluster:
        assert cluster.address == "http://127.0.0.1:8083"


def test_a_session_that_is_named_counts_before_an_election() -> None:
    address = "http://127.0.0.1:8081"
    write_connection(ClusterConnection(address, "t", os.getpid(), "nightly", is_session=True))
    settings = {
        "execution.target": "session",
        "headrace.session.name": "nightly",
        "high-availability.type": "file",
        "high-availability.storageDir": "/elsewhere",
    }
    with ClusterClientFactory(settings).create_cluster_descriptor().retrieve() as cluster:
        assert cluster.address == address


def test_a_standby_that_was_started_has_no_client_and_names_the_leader() -> None:
    with pytest.raises(
        HostError, match=r"process 7 is a standby, which accepts no clients.*process 5"
    ):
        DeployedCluster(leader="process 5", pid=7).get_cluster_client()


def test_a_cluster_that_is_elsewhere_is_ended_over_rest() -> None:
    with fake_cluster({"DELETE /cluster": {}}) as cluster:
        # Without a process: it may be on any machine.
        write_connection(ClusterConnection(cluster.address, cluster.token))
        settings = {"execution.target": "remote", "rest.address": cluster.address}
        ClusterClientFactory(settings).create_cluster_descriptor().kill_cluster()
        assert [one.line for one in cluster.requests] == ["DELETE /cluster"]
