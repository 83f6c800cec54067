"""The remote shuffle service over real sockets: what is pushed, committed, read, refused and found again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import ResultPartitionDescriptor, ResultPartitionType
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import HandshakeError, NetworkError, ProducerFailedError
from headrace.shuffle_service.errors import (
    PushRefusedError,
    ShuffleServiceLostError,
)
from headrace.shuffle_service.service import ShuffleService
from testkit.waiting import wait_until
from tests.integration.network.shuffle_world import (
    consume,
    new_service,
    produce,
    push,
    register,
    writer_of,
)
from tests.unit.network.exchange import drain, events_of, numbers, partition_id, values_of

Opener = Callable[..., Any]


def files_in(directory: Path) -> list[str]:
    # Not Path.rglob: it fails where a folder is deleted while it looks.
    files = [Path(name) for _, _, names in os.walk(directory) for name in names]
    results = sorted(file.name for file in files if file.name.startswith("result"))
    return results + sorted(file.suffix for file in files if "-" in file.name)


def test_a_result_outlives_the_task_manager_that_produced_it(
    service: ShuffleService, task_manager: Opener
) -> None:
    producer = task_manager("tm-1")
    shuffle = push(producer, service, count=3)
    producer.close()
    consumer = task_manager("tm-2")
    read = [drain(consume(consumer, shuffle, index)) for index in range(3)]
    assert sorted(value for each in read for value in values_of(each)) == list(range(1000))
    assert [len(events_of(each)) for each in read] == [2, 2, 2]


def test_a_result_is_read_as_often_as_anybody_wants(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = push(task_manager("tm-1"), service)
    first, second = (values_of(drain(consume(task_manager(name), shuffle, 0))) for name in "ab")
    assert first == second == list(range(1000))


def test_consumers_that_come_early_wait_for_the_commit(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = register(service, partition_id(), 1)
    gate = consume(task_manager("tm-2"), shuffle, 0)
    writer = writer_of(produce(task_manager("tm-1"), shuffle, 1))
    writer.emit(numbers(0, 100))
    writer.flush_all()
    assert gate.poll() is None
    writer.finish()
    writer.close()
    assert values_of(drain(gate)) == list(range(100))


def test_what_is_the_same_for_all_consumers_is_stored_once(
    service: ShuffleService, task_manager: Opener
) -> None:
    single = push(task_manager("tm-1"), service, kind=PartitionerKind.BROADCAST, rows=50_000)
    size = service.stored_bytes
    service.release_partitions([single.partition_id])
    key = partition_id(1)
    shuffle = push(
        task_manager("tm-2"), service, 4, key=key, kind=PartitionerKind.BROADCAST, rows=50_000
    )
    assert service.stored_bytes < 1.1 * size
    consumer = task_manager("tm-3")
    read = [values_of(drain(consume(consumer, shuffle, index))) for index in range(4)]
    assert read == [list(range(50_000))] * 4


def test_a_producer_that_dies_leaves_nothing_and_its_consumers_are_told(
    service: ShuffleService, task_manager: Opener, tmp_path: Path
) -> None:
    shuffle = register(service, partition_id(), 1)
    gate = consume(task_manager("tm-2"), shuffle, 0)
    partition = produce(task_manager("tm-1"), shuffle, 1)
    writer = writer_of(partition)
    writer.emit(numbers(0, 100))
    writer.flush_all()
    writer.fail(RuntimeError("dead"))
    with pytest.raises(ProducerFailedError):
        drain(gate)
    wait_until(lambda: service.partition_count == 0)
    wait_until(lambda: files_in(tmp_path / "results") == [])


def test_a_retried_producer_does_not_double_what_consumers_read(
    service: ShuffleService, task_manager: Opener
) -> None:
    environment = task_manager("tm-1")
    first = register(service, partition_id(0, 0), 1)
    writer = writer_of(produce(environment, first, 1))
    writer.emit(numbers(0, 70))
    writer.flush_all()
    writer.fail(RuntimeError("dead"))
    second = push(environment, service, key=partition_id(0, 1), rows=100)
    assert values_of(drain(consume(environment, second, 0))) == list(range(100))


@pytest.mark.parametrize("push_first", [False, True])
def test_an_older_attempt_is_refused_once_a_newer_one_is_expected(
    service: ShuffleService, task_manager: Opener, push_first: bool
) -> None:
    environment = task_manager("tm-1")
    old = register(service, partition_id(0, 0), 1)
    newer = register(service, partition_id(0, 1), 1)
    if push_first:
        push(environment, service, key=newer.partition_id)
    writer = writer_of(produce(environment, old, 1))
    with pytest.raises(PushRefusedError, match="attempt 1 of the producer has replaced this one"):
        writer.emit(numbers(0, 100))
        writer.finish()
    writer.close()


def test_what_is_committed_is_not_pushed_again(
    service: ShuffleService, task_manager: Opener
) -> None:
    environment = task_manager("tm-1")
    push(environment, service)
    with pytest.raises(PushRefusedError, match="committed already"):
        push(environment, service)


def test_what_nobody_registered_is_refused(service: ShuffleService, task_manager: Opener) -> None:
    shuffle = register(service, partition_id(), 1)
    service.release_partitions([shuffle.partition_id])
    writer = writer_of(produce(task_manager("tm-1"), shuffle, 1))
    with pytest.raises(PushRefusedError, match="the result is not registered"):
        writer.finish()
    writer.close()


def test_a_released_result_is_gone_with_its_files_but_who_reads_goes_on(
    service: ShuffleService, task_manager: Opener, tmp_path: Path
) -> None:
    shuffle = push(task_manager("tm-1"), service, rows=1000)
    gate = consume(task_manager("tm-2"), shuffle, 0)
    wait_until(lambda: gate.is_available)
    service.release_partitions([shuffle.partition_id, partition_id(9)])
    assert values_of(drain(gate)) == list(range(1000))
    wait_until(lambda: files_in(tmp_path / "results") == [])
    assert service.stored_bytes == 0


def test_a_result_that_is_released_while_it_is_pushed_is_refused_from_then_on(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = register(service, partition_id(), 1)
    writer = writer_of(produce(task_manager("tm-1"), shuffle, 1))
    writer.emit(numbers(0, 100))
    writer.flush_all()
    service.release_partitions([shuffle.partition_id])
    with pytest.raises(NetworkError, match="released"):
        writer.finish()
    writer.close()


def test_the_end_of_a_job_deletes_everything_of_it(
    service: ShuffleService, task_manager: Opener, tmp_path: Path
) -> None:
    environment = task_manager("tm-1")
    for number in range(3):
        push(environment, service, key=partition_id(number))
    assert service.committed_count == 3
    service.release_job(partition_id().producer.job_id)
    wait_until(lambda: files_in(tmp_path / "results") == [])
    assert service.partition_count == 0


def test_a_service_that_starts_again_finds_what_was_committed_and_nothing_else(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    first = new_service(tmp_path / "results")
    first.start()
    opened.append(first)
    environment = task_manager("tm-1")
    done = push(environment, first, count=2)
    half = register(first, partition_id(1), 2)
    writer = writer_of(produce(environment, half, 2))
    writer.emit(numbers(0, 5000))
    writer.flush_all()
    # A service that was killed leaves such files; one that is closed tidies up first.
    folder = next((tmp_path / "results").glob("*/*.index")).parent
    (folder / "11-0-22-0-0.index").write_bytes(b"torn")
    (folder / "11-0-22-0-0.data").write_bytes(b"torn")
    first.close()
    writer.fail(RuntimeError("dead"))
    second = new_service(tmp_path / "results")
    location = second.start()
    opened.append(second)
    assert location.resource_id == done.location.resource_id
    assert second.partition_count == second.committed_count == 1
    again = type(done)(done.partition_id, location, is_external=True)
    read = [values_of(drain(consume(task_manager("tm-3"), again, index))) for index in range(2)]
    assert sorted(read[0] + read[1]) == list(range(1000))
    assert len(list(folder.iterdir())) == 2


def test_a_service_that_ends_is_named_to_producers_and_to_consumers(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = register(service, partition_id(), 1)
    environment = task_manager("tm-1")
    gate = consume(environment, shuffle, 0)
    writer = writer_of(produce(environment, shuffle, 1))
    writer.emit(numbers(0, 100))
    writer.flush_all()
    wait_until(lambda: service.connection_count == 2)
    service.close()
    with pytest.raises(ShuffleServiceLostError):
        writer.finish()
    writer.close()
    with pytest.raises(ShuffleServiceLostError):
        drain(gate)


def test_a_stranger_may_neither_push_nor_read(
    service: ShuffleService, task_manager: Opener
) -> None:
    stranger = task_manager("tm-9", secret=b"x" * 32)
    shuffle = register(service, partition_id(), 1)
    writer = writer_of(produce(stranger, shuffle, 1))
    with pytest.raises((HandshakeError, ShuffleServiceLostError)):
        writer.emit(numbers(0, 10))
        writer.finish()
    writer.close()
    assert service.connection_count == 0


def test_pushing_and_reading_work_with_tls(
    opened: list[Any], task_manager: Opener, identity: TlsIdentity, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", tls=identity)
    service.start()
    opened.append(service)
    environment = task_manager("tm-1", tls=identity)
    shuffle = push(environment, service)
    assert values_of(drain(consume(environment, shuffle, 0))) == list(range(1000))


def test_a_disk_share_that_is_used_up_is_a_refusal_with_the_name_of_its_option(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", **{"shuffle-service__disk__max": "100kb"})
    service.start()
    opened.append(service)
    with pytest.raises(PushRefusedError, match=r"shuffle-service\.disk\.max"):
        push(task_manager("tm-1"), service, rows=500_000)


def test_tasks_with_two_results_never_wait_for_the_memory_of_each_other(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", **{"shuffle-service__memory__write": "1mb"})
    service.start()
    opened.append(service)
    environment = task_manager("tm-1")
    shuffles = [register(service, partition_id(number), 1) for number in range(12)]
    writers = [writer_of(produce(environment, shuffle, 1)) for shuffle in shuffles]
    # One thread: if any of them had to wait for another, this would not end.
    for writer in writers:
        writer.emit(numbers(0, 10))
        writer.flush_all()
    for writer in writers:
        writer.emit(numbers(10, 100_000))
        writer.finish()
        writer.close()
    assert service.committed_count == 12
    consumer = task_manager("tm-2")
    assert values_of(drain(consume(consumer, shuffles[-1], 0))) == list(range(100_010))


@pytest.mark.parametrize("size", ["0b", "1kb"])
def test_a_service_without_memory_for_one_batch_is_refused(tmp_path: Path, size: str) -> None:
    with pytest.raises(ConfigurationError, match=r"shuffle-service\.memory\.write"):
        new_service(tmp_path / "results", **{"shuffle-service__memory__write": size})


def test_too_many_connections_are_refused(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    service = new_service(tmp_path / "results", **{"shuffle-service__connections__max": "1"})
    service.start()
    opened.append(service)
    environment = task_manager("tm-1")
    writer = writer_of(produce(environment, register(service, partition_id(0), 1), 1))
    writer.emit(numbers(0, 10))
    writer.flush_all()
    with pytest.raises(ShuffleServiceLostError):
        push(environment, service, key=partition_id(1))
    writer.finish()
    writer.close()


def test_pipelined_results_of_the_same_environment_stay_on_their_task_manager(
    task_manager: Opener,
) -> None:
    environment = task_manager("tm-1")
    partition = environment.create_result_partition(
        ResultPartitionDescriptor(partition_id(), ResultPartitionType.PIPELINED_BOUNDED, 1)
    )
    assert environment.partitions.partition_count == 1 and environment.pushing_count == 0
    partition.fail(None)
