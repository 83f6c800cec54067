"""Terms of the lease in ZooKeeper, from Flink's options."""

from headrace.cluster.high_availability.lease import LeaseTerms
from headrace.cluster.high_availability.zookeeper.zookeeper_leader import zookeeper_terms
from headrace.core.config import Settings


def test_a_leader_gives_up_after_two_thirds_of_the_session_timeout() -> None:
    assert zookeeper_terms(Settings()) == LeaseTerms(60_000, 40_000, 1_000)


def test_a_short_session_is_renewed_more_often() -> None:
    settings = Settings({"high-availability.zookeeper.client.session-timeout": "3 s"})
    assert zookeeper_terms(settings) == LeaseTerms(3_000, 2_000, 500)
