"""What is said where no broker answers: librdkafka tells the reason only to its log, and there at every attempt."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.connectors.kafka.clients import REQUEST_TIMEOUT_S, KafkaError, kafka_client

_FAILURE: Final = re.compile(r"\]: (?:\S+: )?(?P<reason>.+?)(?: \(after \d+ms in state .*)?$")


class KafkaUnreachableError(KafkaError):
    """None of the brokers that the program names has answered."""

    def __init__(self, servers: str, reason: str, timeout_s: float) -> None:
        super().__init__(
            f"Kafka did not answer at {servers} within {timeout_s:.0f} s: {reason}; see whether it runs there, "
            "and whether the driver and every worker reach it under that name (bootstrap.servers)"
        )
        self.servers = servers


class ClientLog(logging.Handler):
    """Takes the log of a client, instead of standard error: give the client `logger`."""

    def __init__(self) -> None:
        super().__init__()
        # Known to nobody else, so that it goes with the client.
        self.logger: Final = logging.Logger("librdkafka")
        self.logger.addHandler(self)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the last line."""
        self._last = record.getMessage()

    def error_of(
        self,
        client: Any,
        config: Mapping[str, Any],
        cause: Any,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> KafkaError:
        """Return what to raise for an error that `client` met, with what its log says of the brokers."""
        library = kafka_client()
        silent = (
            library.KafkaError._TRANSPORT,
            library.KafkaError._TIMED_OUT,
            library.KafkaError._MSG_TIMED_OUT,
            library.KafkaError._ALL_BROKERS_DOWN,
            library.KafkaError._RESOLVE,
        )
        if cause.code() in silent:
            return self.silence_of(client, config, cause.str(), timeout_s)
        return KafkaError(f"Kafka: {cause.str()} (at {config['bootstrap.servers']})")

    def silence_of(
        self, client: Any, config: Mapping[str, Any], what: str, timeout_s: float
    ) -> KafkaUnreachableError:
        """Return what to raise where no answer came; `what` stands for a reason where the log has none."""
        client.poll(0)  # lines wait for the next poll
        found = _FAILURE.search(self._last)
        reason = found["reason"] if found else what
        return KafkaUnreachableError(str(config["bootstrap.servers"]), reason, timeout_s)
