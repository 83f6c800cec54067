"""A consumer whose connection with the shuffle service ends goes on from the element it had got to."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.core.elements import EndOfPartition
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.network.batches.sealed_batch import decode_event
from headrace.network.errors import PartitionError
from headrace.network.wire.frames import Data, Error, Event, PartitionRequest
from headrace.shuffle_service.errors import ShuffleServiceLostError
from headrace.shuffle_service.remote_shuffle_environment import RemoteShuffleEnvironment
from headrace.shuffle_service.service import ShuffleService
from headrace.testing.fault_proxy.proxy import Address, FaultProxy
from headrace.testing.fault_proxy.rules import parse_rule
from testkit.waiting import wait_until
from tests.integration.network.proxied import LoopThread
from tests.integration.network.raw_peer import RawPeer
from tests.integration.network.shuffle_world import consume, new_service, push
from tests.unit.network.exchange import (
    NUMBERS,
    attempt,
    drain,
    events_of,
    next_element,
    partition_id,
    values_of,
)

pytestmark = pytest.mark.integration
Opener = Callable[..., Any]
ROWS = 300_000


class Road:
    """A proxy in front of a service: what passes it is noted and spoiled."""

    def __init__(
        self, thread: LoopThread, there: TaskManagerLocation, rules: tuple[str, ...]
    ) -> None:
        self._thread = thread
        self.faults: list[str] = []
        self._proxy = FaultProxy(
            Address(there.host, there.data_port),
            [parse_rule(rule) for rule in rules],
            0,
            on_fault=lambda _, fault: self.faults.append(fault.rule.word),
        )
        bound = thread.run(self._proxy.listen(Address("127.0.0.1", 0)))
        self.location = msgspec.structs.replace(
            there, host=bound.host, data_port=bound.port, unix_socket_path=None
        )

    def close(self) -> None:
        self._thread.run(self._proxy.close())


@pytest.fixture
def road(service: ShuffleService) -> Iterator[Callable[..., Road]]:
    thread = LoopThread()
    made: list[Road] = []

    def make(*rules: str, there: TaskManagerLocation | None = None) -> Road:
        there = there or service.location
        assert there is not None
        made.append(Road(thread, there, rules))
        return made[-1]

    yield make
    for each in made:
        each.close()
    thread.stop()


def by_way_of(shuffle: ShuffleDescriptor, road: Road) -> ShuffleDescriptor:
    return msgspec.structs.replace(shuffle, location=road.location)


def read(environment: RemoteShuffleEnvironment, shuffle: ShuffleDescriptor) -> list[Any]:
    gate = consume(environment, shuffle, 0)
    elements = drain(gate, 30)
    gate.close()
    return elements


@pytest.mark.parametrize("at", [0, 7, 60, 4000])
def test_cuts_in_the_middle_of_a_result_lose_no_row_and_repeat_none(
    service: ShuffleService, task_manager: Opener, road: Callable[..., Road], at: int
) -> None:
    """Each connection ends within its fifth batch: the result has a dozen of them, and a consumer gets four further."""
    shuffle = push(task_manager("tm-1"), service, rows=ROWS)
    through = road(f"cut {at} Data nth=5")
    elements = read(task_manager("tm-2"), by_way_of(shuffle, through))
    assert values_of(elements) == list(range(ROWS))
    assert len(events_of(elements)) == 2
    assert through.faults.count("cut") > 1


def test_several_channels_of_one_gate_go_on_each_from_where_it_is(
    service: ShuffleService, task_manager: Opener, road: Callable[..., Road]
) -> None:
    producer, consumer = task_manager("tm-1"), task_manager("tm-2")
    shuffles = [
        push(producer, service, rows=ROWS // 3, key=partition_id(number)) for number in range(3)
    ]
    through = road("cut 100 Data nth=7")
    gate = consume_all(consumer, [by_way_of(shuffle, through) for shuffle in shuffles])
    values = values_of(drain(gate, 30))
    gate.close()
    assert sorted(values) == sorted(list(range(ROWS // 3)) * 3)
    assert through.faults.count("cut") > 1


def test_a_batch_that_was_changed_on_its_way_is_read_again(
    opened: list[Any], task_manager: Opener, tmp_path: Path, road: Callable[..., Road]
) -> None:
    service = new_service(tmp_path / "checked", headrace__network__checksum="true")
    service.start()
    opened.append(service)
    shuffle = push(task_manager("tm-1", headrace__network__checksum="true"), service, rows=ROWS)
    through = road("corrupt Data nth=4", there=service.location)
    elements = read(
        task_manager("tm-2", headrace__network__checksum="true"), by_way_of(shuffle, through)
    )
    assert values_of(elements) == list(range(ROWS))
    assert "corrupt" in through.faults


def test_a_consumer_whose_task_is_slow_goes_on_when_it_has_taken_what_had_come(
    service: ShuffleService, task_manager: Opener, road: Callable[..., Road]
) -> None:
    shuffle = push(task_manager("tm-1"), service, rows=ROWS)
    through = road("cut Data nth=3")
    gate = consume(task_manager("tm-2"), by_way_of(shuffle, through), 0)
    first = next_element(gate, 30)
    assert first is not None
    wait_until(lambda: "cut" in through.faults)
    elements = [first, *drain(gate, 30)]
    gate.close()
    assert values_of(elements) == list(range(ROWS))


def test_a_service_that_starts_again_at_its_port_is_read_on(
    opened: list[Any], task_manager: Opener, tmp_path: Path
) -> None:
    first = new_service(tmp_path / "results")
    place = first.start()
    shuffle = push(task_manager("tm-1"), first, rows=ROWS)
    gate = consume(task_manager("tm-2"), shuffle, 0)
    begun = next_element(gate, 30)
    assert begun is not None
    first.close()
    again = new_service(tmp_path / "results", taskmanager__data__port=str(place.data_port))
    opened.append(again)
    assert again.start().data_port == place.data_port
    elements = [begun, *drain(gate, 30)]
    gate.close()
    assert values_of(elements) == list(range(ROWS))


def test_a_service_that_stays_away_is_named_in_the_end(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = push(task_manager("tm-1"), service, rows=ROWS)
    gate = consume(task_manager("tm-2"), shuffle, 0)
    next_element(gate, 30)
    service.close()
    with pytest.raises(ShuffleServiceLostError, match="start it again"):
        drain(gate, 30)
    gate.close()


def test_from_any_element_on_the_same_elements_come(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = push(task_manager("tm-1"), service, rows=ROWS // 6)
    whole = elements_from(service.location, shuffle, 0)
    assert len(whole) > 4
    for first in range(len(whole)):
        assert elements_from(service.location, shuffle, first) == whole[first:]


def test_who_wants_to_read_on_behind_the_end_is_refused(
    service: ShuffleService, task_manager: Opener
) -> None:
    shuffle = push(task_manager("tm-1"), service)
    peer = RawPeer.dial(service.location)
    peer.send(request(shuffle, 1000))
    assert b"beyond the end of a stored result" in bytes(peer.expect(Error).body)
    peer.close()


@pytest.mark.parametrize(
    "kind", [ResultPartitionType.PIPELINED_BOUNDED, ResultPartitionType.HYBRID_FULL]
)
def test_what_is_read_once_is_not_read_on(task_manager: Opener, kind: ResultPartitionType) -> None:
    producer = task_manager("tm-1")
    partition = producer.create_result_partition(ResultPartitionDescriptor(partition_id(), kind, 1))
    with pytest.raises(PartitionError, match="can only be read once"):
        producer.partitions.create_view(partition_id(), 0, lambda: None, 32 << 10, 1)
    partition.fail(None)
    partition.release()


def request(shuffle: ShuffleDescriptor, first: int) -> PartitionRequest:
    return PartitionRequest(0, shuffle.partition_id, 0, 1000, 1000, 32 << 10, first)


def elements_from(
    location: TaskManagerLocation, shuffle: ShuffleDescriptor, first: int
) -> list[tuple[int, bytes]]:
    """What a consumer is sent that begins with this element: numbers and bytes."""
    peer = RawPeer.dial(location)
    peer.send(request(shuffle, first))
    found: list[tuple[int, bytes]] = []
    while True:
        frame: Any = peer.expect(Data | Event)  # type: ignore[arg-type]
        is_data = isinstance(frame, Data)
        found.append((frame.sequence, bytes(frame.body) if is_data else bytes([frame.kind])))
        if not is_data and isinstance(
            decode_event(frame.kind, frame.value, b"", "it"), EndOfPartition
        ):
            peer.close()
            return found


def consume_all(environment: Any, shuffles: Sequence[ShuffleDescriptor]) -> Any:
    channels = tuple(InputChannelDescriptor(shuffle, 0) for shuffle in shuffles)
    gate = environment.create_input_gate(
        InputGateDescriptor(shuffles[0].partition_id.data_set_id, 0, channels),
        attempt("consumer", 0),
    )
    gate.read_as(NUMBERS)
    gate.request_partitions()
    return gate
