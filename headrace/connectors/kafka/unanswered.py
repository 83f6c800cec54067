"""What is said where no broker answers: librdkafka tells the reason only to its log, and there at every attempt."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.connectors.kafka.clients import REQUEST_TIMEOUT_S, KafkaError, kafka_client

_FAILURE: Final = re.compile(r"\]: (?:\S+: )?(?P<reason>.+?)(?: \(after \d+ms in state .*)?$")


class KafkaUnreachableError(KafkaError):
    """None of the brokers that the program names has answered."""

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(
            f"Kafka did not answer at {servers} within {REQUEST_TIMEOUT_S:.0f} s: {reason}; see whether it runs there, "
            "and whether the driver and every worker reach it under that name (bootstrap.servers)"
        )
        self.servers = servers


class ClientLog(logging.Handler):
    """Takes the log of a client for a few questions, instead of standard error: give the client `logger`."""

    def __init__(self) -> None:
        super().__init__()
        # Known to nobody else, so that it goes with the client.
        self.logger: Final = logging.Logger("librdkafka")
        self.logger.addHandler(self)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the last line."""
        self._last = record.getMessage()

    def error_of(self, client: Any, config: Mapping[str, Any], error: Any) -> KafkaError:
        """Return what to raise for a KafkaException of `client`, with what its log says of the brokers."""
        library = kafka_client()
        cause = error.args[0]
        silent = (
            library.KafkaError._TRANSPORT,
            library.KafkaError._TIMED_OUT,
            library.KafkaError._ALL_BROKERS_DOWN,
            library.KafkaError._RESOLVE,
        )
        servers = str(config["bootstrap.servers"])
        if cause.code() not in silent:
            return KafkaError(f"Kafka: {cause.str()} (at {servers})")
        client.poll(0)  # lines wait for the next poll
        found = _FAILURE.search(self._last)
        return KafkaUnreachableError(servers, found["reason"] if found else cause.str())
