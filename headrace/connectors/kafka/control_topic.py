"""The control topic of a sink that writes in transactions: it is made, and read from its beginning to its end."""

from collections.abc import Mapping
from typing import Any

from headrace.connectors.kafka.clients import (
    REQUEST_TIMEOUT_S,
    KafkaRecord,
    RecordsExpiredError,
    create_consumer,
    kafka_client,
)
from headrace.connectors.kafka.unanswered import ClientLog


def read_to_end(config: Mapping[str, Any], topic: str, partition: int) -> list[KafkaRecord]:
    """Return the committed records of a partition, from its beginning to its present end.

    RecordsExpiredError where the topic no longer has its first ones; KafkaError.
    """
    library = kafka_client()
    log = ClientLog()
    consumer = create_consumer(
        {
            **config,
            "logger": log.logger,
            "group.id": "headrace-control",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[KafkaRecord] = []
    try:
        where = library.TopicPartition(topic, partition, library.OFFSET_BEGINNING)
        begin, _ = consumer.get_watermark_offsets(where, timeout=REQUEST_TIMEOUT_S)
        if begin > 0:
            # Compaction leaves the beginning of a partition where it is.
            raise RecordsExpiredError(
                f"the topic '{topic}' has dropped its records before {begin}, so it no longer says what was written: "
                "its cleanup.policy must be compact"
            )
        consumer.assign([where])
        while True:
            message = consumer.poll(REQUEST_TIMEOUT_S)
            if message is None:
                reason = f"'{topic}' has an end that was not reached"
                raise log.silence_of(consumer, config, reason, REQUEST_TIMEOUT_S)
            error = message.error()
            if error is None:
                found.append(
                    KafkaRecord(
                        topic, message.key(), message.value(), partition, None, message.offset()
                    )
                )
            elif error.code() == library.KafkaError._PARTITION_EOF:
                return found
            elif error.code() != library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise log.error_of(consumer, config, error)
    except library.KafkaException as error:
        raise log.error_of(consumer, config, error.args[0]) from error
    finally:
        consumer.close()


def ensure_compacted_topic(config: Mapping[str, Any], topic: str) -> None:
    """Create a topic of one partition that keeps the last record of each key, unless it is there. KafkaError."""
    library = kafka_client()
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    log = ClientLog()
    settings: dict[str, Any] = {**config, "logger": log.logger}
    admin = AdminClient(settings)
    try:
        if topic in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
            return
        wanted = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})
        admin.create_topics([wanted])[topic].result(REQUEST_TIMEOUT_S)
    except TimeoutError as error:
        reason = f"the topic '{topic}' was not created"
        raise log.silence_of(admin, config, reason, REQUEST_TIMEOUT_S) from error
    except library.KafkaException as error:
        cause = error.args[0]
        if cause.code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
            raise log.error_of(admin, config, cause) from error
