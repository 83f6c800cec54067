"""Messages between processes of two releases have the bytes that they always had: a change raises PROTOCOL_VERSION.

A cluster is of one release (`cluster/versions`); a shuffle service outlives clusters, and may be of another one.
"""

from typing import Any

import pytest

from headrace.core.ids import (
    IntermediateDataSetId,
    JobId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.messages import Acknowledge
from headrace.gateways.shuffle_service import ShuffleServiceGateway, ShuffleServiceStatus
from headrace.rpc.codec import PROTOCOL_VERSION
from headrace.rpc.contract import gateway_contract
from tests.unit.cluster.cluster_samples import attempt

JOB = JobId(b"j" * 16)
LOCATION = TaskManagerLocation(ResourceId("service"), "host", 7, None, "machine")
PARTITION = ResultPartitionId(IntermediateDataSetId(b"d" * 16), 3, attempt(0))
STATUS = ShuffleServiceStatus(LOCATION, 1, 2, 3, 4)

GOLDEN: dict[str, tuple[tuple[Any, ...], str, Any, str]] = {
    "register_partition": (
        (PARTITION, 5),
        (
            "929391c41064646464646464646464646464646464039391c4106a6a6a6a6a6a6a6a6a6a6a6a6a6a"
            "6a6a9291c41000000000000000000000000000000001000005"
        ),
        LOCATION,
        (
            "85ab7265736f757263655f696491a773657276696365a4686f7374a4686f7374a9646174615f706f"
            "727407b0756e69785f736f636b65745f70617468c0a7686f73745f6964a76d616368696e65"
        ),
    ),
    "release_partitions": (
        ((PARTITION,),),
        (
            "91919391c41064646464646464646464646464646464039391c4106a6a6a6a6a6a6a6a6a6a6a6a6a"
            "6a6a6a9291c410000000000000000000000000000000010000"
        ),
        Acknowledge(),
        ("80"),
    ),
    "release_job": ((JOB,), ("9191c4106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a"), Acknowledge(), ("80")),
    "heartbeat": (
        ((JOB,),),
        ("919191c4106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a"),
        STATUS,
        (
            "85a86c6f636174696f6e85ab7265736f757263655f696491a773657276696365a4686f7374a4686f"
            "7374a9646174615f706f727407b0756e69785f736f636b65745f70617468c0a7686f73745f6964a7"
            "6d616368696e65af706172746974696f6e5f636f756e7401af636f6d6d69747465645f636f756e74"
            "02ac73746f7265645f627974657303b0636f6e6e656374696f6e5f636f756e7404"
        ),
    ),
}
"""By method: arguments and their bytes, reply and its bytes."""


def test_every_method_is_here() -> None:
    assert GOLDEN.keys() == gateway_contract(ShuffleServiceGateway).methods.keys()
    assert PROTOCOL_VERSION == 2


@pytest.mark.parametrize("method", GOLDEN)
def test_calls_and_answers_have_the_bytes_they_always_had(method: str) -> None:
    arguments, argument_bytes, reply, reply_bytes = GOLDEN[method]
    contract = gateway_contract(ShuffleServiceGateway).methods[method]
    assert contract.encode_arguments(arguments).hex() == argument_bytes
    assert contract.encode_reply(reply).hex() == reply_bytes
