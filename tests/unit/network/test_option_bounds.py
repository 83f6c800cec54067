"""Values with which the exchange cannot work are refused by the name of their option, before anything starts."""

from typing import Any

import pytest

import headrace.network.environment
import headrace.shuffle_service.options
from headrace.core.config import check_settings
from headrace.core.errors import ConfigurationError
from tests.unit.network.exchange import environment

# They declare the options.
assert headrace.network.environment and headrace.shuffle_service.options


@pytest.mark.parametrize(
    ("key", "refused", "taken"),
    [
        ("taskmanager.network.memory.buffers-per-channel", "0", "1"),
        ("taskmanager.memory.segment-size", "0", "4kb"),
        ("taskmanager.memory.segment-size", "4095b", "4096b"),
        ("taskmanager.memory.segment-size", "65mb", "64mb"),
        ("taskmanager.memory.segment-size", "2gb", "1mb"),
        ("taskmanager.memory.network.fraction", "inf", "1"),
        ("taskmanager.memory.network.fraction", "nan", "0"),
        ("taskmanager.memory.network.fraction", "1.5", "0.5"),
        ("taskmanager.network.netty.client.connectTimeoutSec", "0", "1"),
        ("headrace.network.handshake-timeout", "0ms", "10ms"),
        ("shuffle-service.connections.max", "0", "1"),
        ("shuffle-service.push-credit", "0", "1"),
        ("shuffle-service.lease", "0ms", "1s"),
        ("shuffle-service.heartbeat.interval", "0ms", "1ms"),
        ("shuffle-service.heartbeat.timeout", "0ms", "1ms"),
    ],
)
def test_a_value_that_the_exchange_cannot_work_with_is_refused_by_name(
    key: str, refused: str, taken: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"'{key}' has the value '{refused}': it must be"):
        check_settings({key: refused}, ())
    check_settings({key: taken}, ())


def test_segments_that_the_network_memory_has_too_few_of_are_refused_with_the_largest_size() -> (
    None
):
    memory: dict[str, Any] = {
        "taskmanager_memory_network_min": "64kb",
        "taskmanager_memory_network_max": "64kb",
    }
    told = r"'taskmanager\.memory\.segment-size' has the value '32769 bytes': it must be at most 32768 bytes"
    with pytest.raises(ConfigurationError, match=told) as caught:
        environment("a", taskmanager_memory_segment__size="32769b", **memory)
    assert "'taskmanager.memory.network.max'" in str(caught.value)
    environment("a", taskmanager_memory_segment__size="32768b", **memory).close()
