"""The quota of slots that a job may ask for."""

import pytest

from headrace.cluster.dispatcher.slot_quota import (
    SLOTS_PER_JOB_MAX,
    SlotQuotaExceededError,
    refuse_above_quota,
)
from headrace.cluster.minicluster import MiniCluster
from headrace.core.config import Settings
from headrace.gateways.errors import UnknownJobError
from tests.unit.cluster.cluster_samples import JOB, job_graph, vertex

WIDE = job_graph((vertex(1, 2), vertex(2, 3), vertex(3, 4, group="apart")))
"""Three slots of one group, and four of another."""


def quota(count: int) -> Settings:
    return Settings({SLOTS_PER_JOB_MAX.key: str(count)})


def test_a_job_that_needs_more_is_refused_with_both_numbers() -> None:
    with pytest.raises(SlotQuotaExceededError, match=r"needs 7 slots, .* may use only 6"):
        refuse_above_quota(WIDE, quota(6))


@pytest.mark.parametrize("settings", [quota(7), quota(0), Settings()])
def test_others_are_not(settings: Settings) -> None:
    refuse_above_quota(WIDE, settings)
    assert sum(vertex.parallelism for vertex in WIDE.vertices) == 9, "more subtasks than slots"


def test_a_refused_job_is_unknown_to_the_cluster_whatever_its_own_settings_say() -> None:
    graph = job_graph((vertex(1, 2),), settings=quota(9).to_dict())
    with MiniCluster(settings=quota(1).to_dict()) as cluster:
        with pytest.raises(SlotQuotaExceededError):
            cluster.submit(graph)
        with pytest.raises(UnknownJobError):
            cluster.handle.call(cluster.handle.dispatcher.request_job_status(JOB))
