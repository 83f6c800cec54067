"""Handlers of data sets, which are results that jobs left in the cluster: their list and their deletion."""

from typing import Annotated, Final

from fastapi import Path

from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    RunningOperations,
    TriggerParameter,
)
from headrace.rest.handlers.savepoints import (
    NO_JOB,
    begin_operation,
    find_operation,
    savepoint_status_of,
)
from headrace.rest.models.base_models import WHOLE_ID
from headrace.rest.models.checkpoints import SavepointOperationResult, SavepointOutcome
from headrace.rest.models.cluster import DataSet, DataSetList, TriggerAnswer

_DELETION: Final = "data set deletion"
_DataSetId = Annotated[str, Path(alias="datasetid", pattern=WHOLE_ID)]


async def data_sets(cluster: ClusterParameter) -> DataSetList:
    """List results that jobs left in the cluster."""
    found = await cluster.data_sets()
    return DataSetList(
        data_sets=[
            DataSet(id=each.data_set.data_set_id.hex(), is_complete=each.is_complete)
            for each in found
        ]
    )


async def delete_data_set(
    cluster: ClusterParameter, operations: RunningOperations, data_set_id: _DataSetId
) -> TriggerAnswer:
    """Start to delete the results that jobs left under one id."""
    listed = await cluster.ask(cluster.resource_manager.list_data_sets())
    wanted = [
        each.data_set for each in listed if each.data_set.data_set_id.hex() == data_set_id.lower()
    ]
    if not wanted:
        raise NotFoundError(f"There is no data set {data_set_id} on this cluster.")

    async def delete() -> None:
        for data_set in wanted:
            await cluster.change(cluster.resource_manager.release_cluster_partitions(data_set))

    return begin_operation(operations, _DELETION, NO_JOB, None, delete)


async def data_set_deletion_status(
    operations: RunningOperations, trigger: TriggerParameter
) -> SavepointOperationResult:
    """Return the status of the deletion of a data set."""
    title = "deletion of a data set"
    task = find_operation(operations, _DELETION, NO_JOB, trigger, title)
    return savepoint_status_of(task, SavepointOutcome())
