"""Below the public API and REST nobody chooses the format of a savepoint for its caller."""

import inspect

import pytest

from headrace.client.rest_dispatcher import RestDispatcher
from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.job_master.job_master import JobMaster
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.job_master import JobMasterGateway
from headrace.spark.batch.batch_job_master import BatchJobMaster


@pytest.mark.parametrize("method", ["trigger_savepoint", "stop_with_savepoint"])
@pytest.mark.parametrize(
    "of",
    [DispatcherGateway, JobMasterGateway, Dispatcher, JobMaster, BatchJobMaster, RestDispatcher],
)
def test_the_format_of_a_savepoint_is_always_told(of: type, method: str) -> None:
    format_type = inspect.signature(getattr(of, method)).parameters["format_type"]
    assert format_type.default is inspect.Parameter.empty
