"""Pushes to a service that hangs, and of rows that are changed on their way."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.elements import CancelTaskException
from headrace.core.randomness import SeededRandom
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import NetworkError
from headrace.network.wire.frames import IngestData, PushData
from headrace.network.wire.framing import Frame, encode
from headrace.shuffle_service.errors import PushNotAdmittedError, PushStalledError
from headrace.shuffle_service.remote_partition import PushSender
from headrace.shuffle_service.service import ShuffleService
from tests.integration.network.shuffle_world import (
    consume,
    new_service,
    produce,
    push,
    register,
    writer_of,
)
from tests.unit.network.exchange import SECRET, drain, numbers, partition_id, values_of

pytestmark = pytest.mark.integration
Opener = Callable[..., Any]


@pytest.fixture
def hanging(service: ShuffleService, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The service's disk hangs until the test is over. Set once somebody waits for it."""
    entered, over = threading.Event(), threading.Event()
    create_writer = service._store.create_writer

    def hang(*values: Any) -> Any:
        entered.set()
        over.wait()
        return create_writer(*values)

    monkeypatch.setattr(service._store, "create_writer", hang)
    yield entered
    over.set()


def test_a_producer_does_not_wait_for_ever_to_be_admitted(
    service: ShuffleService, hanging: threading.Event
) -> None:
    location = register(service, partition_id(), 1).location
    assert location is not None
    sender = PushSender(location, SECRET, SeededRandom(1), None, partition_id(), 1, 0.01, 60)
    with pytest.raises(PushNotAdmittedError, match=r"within 0\.01 s .*admission-timeout"):
        sender.commit()
    sender.close()


def test_a_task_that_waits_for_the_service_can_be_cancelled(
    service: ShuffleService, task_manager: Opener, hanging: threading.Event
) -> None:
    waiting = writer_of(produce(task_manager("tm-1"), register(service, partition_id(1), 1), 1))
    errors: list[BaseException] = []

    def run() -> None:
        try:
            waiting.emit(numbers(0, 10))
            waiting.finish()
        except (NetworkError, CancelTaskException) as error:
            errors.append(error)
        finally:
            waiting.close()

    task = threading.Thread(target=run)
    task.start()
    assert hanging.wait(10)
    waiting.fail(CancelTaskException("cancelled"))
    task.join(10)
    assert len(errors) == 1 and not task.is_alive()


@pytest.fixture
def spoils_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of every pushed batch turns over on its way."""

    def encode_badly(message: Frame, *, with_checksum: bool = False) -> list[Any]:
        parts = encode(message, with_checksum=with_checksum)
        if isinstance(message, PushData | IngestData):
            body = bytearray(b"".join(bytes(memoryview(part)) for part in parts))
            body[-1] ^= 1
            return [bytes(body)]
        return parts

    monkeypatch.setattr("headrace.network.transport.blocking_connection.encode", encode_badly)


@pytest.mark.usefixtures("spoils_rows")
def test_a_service_that_wants_checksums_takes_no_row_that_was_changed_on_its_way(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", **{"headrace__network__checksum": "true"})
    service.start()
    opened.append(service)
    with pytest.raises(
        NetworkError, match="the body of a frame of type PushData was changed in transit"
    ):
        push(task_manager("tm-1"), service)


def test_a_service_that_wants_checksums_takes_what_arrives_as_it_was_sent(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", **{"headrace__network__checksum": "true"})
    service.start()
    opened.append(service)
    shuffle = push(task_manager("tm-1"), service)
    assert values_of(drain(consume(task_manager("tm-2"), shuffle, 0))) == list(range(1000))


def test_a_producer_does_not_wait_for_ever_for_a_batch_to_be_stored_nor_for_the_end(
    service: ShuffleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, over = threading.Event(), threading.Event()

    def hang(*values: Any) -> bool:
        entered.set()
        return over.wait()

    monkeypatch.setattr(service._store, "grown", hang)
    stalled: list[str] = []
    for number in range(2):
        location = register(service, partition_id(number), 1).location
        assert location is not None
        sender = PushSender(
            location, SECRET, SeededRandom(1), None, partition_id(number), 1, 60, 0.05
        )
        with pytest.raises(PushStalledError, match=r"within 0\.05 s.*push-timeout") as caught:
            for start in range(100 if number else 1):
                sender.send(0, SealedBatch(numbers(start, 1).columns(), ()))
            sender.commit()
        stalled.append(str(caught.value))
        sender.close()
        assert entered.wait(10)
    over.set()
    assert "did not complete a result" in stalled[0] and "did not store a batch" in stalled[1]
