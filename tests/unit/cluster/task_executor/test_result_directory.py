"""The directory of a TaskManager's stored results."""

from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.cluster.task_executor.task_manager_runner import LocalTaskManager
from headrace.core.ids import ResourceId
from headrace.core.shuffle_descriptors import ResultPartitionDescriptor, ResultPartitionType
from tests.unit.network.exchange import SECRET, partition_id


@pytest.mark.parametrize("is_named", [True, False])
def test_results_lie_in_the_scratch_of_the_process_unless_the_user_names_a_place(
    tmp_path: Path, is_named: bool
) -> None:
    named, scratch = tmp_path / "named", tmp_path / "scratch"
    named.mkdir()
    scratch.mkdir()
    configuration = TaskManagerConfiguration(
        resource_id=ResourceId("tm"),
        leader_retrieval_address="",
        secret=SECRET,
        settings={"io.tmp.dirs": str(named)} if is_named else {},
        scratch_directory=scratch,
    )
    with LocalTaskManager(configuration) as task_manager:
        shuffle: Any = task_manager._shuffle
        shuffle.create_result_partition(
            ResultPartitionDescriptor(partition_id(), ResultPartitionType.BLOCKING, 1)
        )
        assert bool(list(named.iterdir())) == is_named
        assert bool(list(scratch.iterdir())) != is_named
    assert list(named.iterdir()) == list(scratch.iterdir()) == []
