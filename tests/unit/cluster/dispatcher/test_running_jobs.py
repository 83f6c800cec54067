"""Which refusals of a stored job end it, and which are left to another driver."""

import pytest

from headrace.cluster.dispatcher.running_jobs import is_job_to_blame
from headrace.core.errors import (
    ConfigurationError,
    HeadraceError,
    HostError,
    NotInstalledError,
    ProgramError,
)
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph

KEY = "execution.checkpointing.num-retained"
DEPRECATED_KEY = "state.checkpoints.num-retained"


@pytest.mark.parametrize(
    ("error", "settings", "expected"),
    [
        (ProgramError("it has no operators"), {}, True),
        (ConfigurationError(KEY, "0", "no"), {KEY: "0"}, True),
        (ConfigurationError(KEY, "0", "no"), {DEPRECATED_KEY: "0"}, True),
        (ConfigurationError(KEY, "0", "no"), {}, False),
        (NotInstalledError("the coordinator"), {}, False),
        (HostError("Spark is gone"), {}, False),
    ],
)
def test_a_job_is_to_blame_for_its_own_graph_and_settings_alone(
    error: HeadraceError, settings: dict[str, str], expected: bool
) -> None:
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), settings)
    assert is_job_to_blame(error, graph) is expected
