"""Values with which the exchange cannot work are refused by the name of their option, before anything starts."""

import pytest

import headrace.network.environment
import headrace.shuffle_service.options
from headrace.core.config import check_settings
from headrace.core.errors import ConfigurationError

# They declare the options.
assert headrace.network.environment and headrace.shuffle_service.options


@pytest.mark.parametrize(
    ("key", "refused", "taken"),
    [
        ("taskmanager.network.memory.buffers-per-channel", "0", "1"),
        ("taskmanager.memory.segment-size", "0", "4kb"),
        ("taskmanager.memory.segment-size", "4095b", "4096b"),
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
