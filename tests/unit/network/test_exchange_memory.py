"""Memory of whole exchanges: what is sent stays within what was set aside.

Everything runs on virtual time; tasks are stepped in an order drawn from a seed.
"""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.randomness import SeededRandom
from headrace.network.errors import InsufficientBuffersError
from headrace.network.gates.gate import BatchElement
from headrace.network.sessions.producer_session import ProducerSession
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.exchange_chains import PAGE, Chain, memory_of, minimum_pages
from tests.unit.network.simulated import SimulatedCluster


@pytest.mark.slow
def test_eight_hundred_channels_with_one_buffer_each_stay_within_their_memory() -> None:
    count = 800
    cluster = SimulatedCluster()
    producer, location = cluster.start("a", **memory_of(64 * count + 1000))
    options = {"taskmanager_network_memory_buffers__per__channel": "1"}
    consumer, _ = cluster.start("b", **memory_of(count + 8), **options)
    sinks = [writer(producer, number=number) for number in range(count)]
    source = gate(consumer, [location] * count)
    assert consumer.buffer_pool.idle_pages == 0
    source.request_partitions()
    cluster.loop.run_all()
    sent = [0] * count
    for _ in range(20):
        for number, sink in enumerate(sinks):
            if sink.is_available:
                sink.emit(numbers(sent[number], 1000))
                sink.flush_all()
                sent[number] += 1000
        cluster.loop.run_all()
        assert source.used_segment_count <= count + 8
        assert producer.buffer_pool.idle_pages >= 0
    # Nobody reads: every producer is held back, and what was taken in is one batch per channel and eight to share.
    assert not any(sink.is_available for sink in sinks)
    assert source.queue_length == count + 8
    assert source.queued_bytes <= (count + 8) * PAGE
    received: list[list[int]] = [[] for _ in range(count)]
    finished: set[int] = set()
    while not source.is_finished:
        while (element := source.poll()) is not None:
            if isinstance(element, BatchElement):
                received[element.channel_index] += values_of([element])
            del element
        for number, sink in enumerate(sinks):
            if number not in finished:
                finished.add(number)
                sink.finish()
                sink.close()
        if not source.is_available:
            assert cluster.loop.step(), "rows are left, and nothing is left to happen"
    assert received == [list(range(most)) for most in sent]
    source.close()
    cluster.assert_nothing_leaks()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
def test_a_chain_of_keyed_edges_gets_through_with_the_least_memory_it_can_be_deployed_with(
    seed: int,
) -> None:
    parallelism, rows = 1 + seed % 3, 120
    random = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 0.5, 20.0]))
    options = memory_of(minimum_pages(parallelism))
    options |= {"taskmanager_network_memory_floating__buffers__per__gate": "1"}
    environments = [cluster.start(f"tm-{index}", **options) for index in range(parallelism)]
    chain = Chain(seed, environments, rows)
    assert all(env.buffer_pool.unreserved_pages == 0 for env, _ in environments if parallelism > 1)
    chain.run(cluster)
    assert all(stage.has_ended for stage in chain.stages), chain.describe()
    received = [value for stage in chain.stages if "sink" in stage.name for value in stage.received]
    assert sorted(received) == sorted(list(range(rows)) * parallelism)
    cluster.assert_nothing_leaks()


def test_with_a_page_less_a_task_is_refused_before_anything_runs() -> None:
    cluster = SimulatedCluster()
    options = memory_of(minimum_pages(2) - 1)
    options |= {"taskmanager_network_memory_floating__buffers__per__gate": "1"}
    environments = [cluster.start(f"tm-{index}", **options) for index in range(2)]
    with pytest.raises(InsufficientBuffersError, match="insufficient number of network buffers"):
        Chain(0, environments, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_sink_that_stands_still_stops_the_source_two_edges_away_and_lets_it_go_again(
    seed: int,
) -> None:
    rows = 300
    cluster = SimulatedCluster()
    environments = [cluster.start(f"tm-{index}") for index in range(2)]
    chain = Chain(seed, environments, rows)
    sources = [stage for stage in chain.stages if "source" in stage.name]
    for _ in range(3):
        # The sinks are not stepped.
        for _ in range(1000):
            moved = [stage.step() for stage in chain.stages if "sink" not in stage.name]
            if not cluster.loop.step() and not any(moved):
                break
    assert all(0 < stage.sent < rows for stage in sources), chain.describe()
    assert not any(stage.sink.is_available for stage in sources if stage.sink is not None)
    waiting = sum(stage.sent for stage in sources)
    # Ten batches a subpartition, ten segments a gate at most on each of the two edges, and what a map had at hand.
    assert waiting <= 2 * 4 * (10 + 1) + 2 * 2 * (2 * 2 + 8) + 8
    chain.run(cluster)
    assert all(stage.has_ended for stage in chain.stages), chain.describe()
    cluster.assert_nothing_leaks()


def test_envelopes_are_less_than_a_tenth_of_what_is_sent_at_a_megabyte_a_second() -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    sink, source = writer(producer, buffer_timeout_ms=100), gate(cluster.start("b")[0], [location])
    source.request_partitions()
    cluster.loop.run_all()
    sent_bytes = frame_bytes = 0
    take_output = ProducerSession.take_output

    def counted(self: ProducerSession, budget_bytes: int) -> list[object]:
        nonlocal frame_bytes
        output = take_output(self, budget_bytes)
        frame_bytes += sum(len(part) for part in output)
        return output  # type: ignore[return-value]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerSession, "take_output", counted)
        # A second in steps of ten milliseconds, with the flush of the timeout every tenth one.
        for step in range(100):
            sink.emit(numbers(step * 1311, 1311))
            sent_bytes += 1311 * 8
            if step % 10 == 9:
                sink.flush_all()
            cluster.loop.run_for(10)
            while source.is_available and source.poll() is not None:
                pass
    assert sent_bytes >= 1_000_000
    assert sent_bytes <= frame_bytes <= 1.1 * sent_bytes
    sink.finish()
    sink.close()
    cluster.loop.run_all()
    while source.poll() is not None:
        pass
    source.close()
    cluster.assert_nothing_leaks()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["finish", "close", "kill", "fail"])
@pytest.mark.parametrize("seed", range(4))
def test_what_user_code_keeps_of_batches_stays_as_it_was_and_comes_back_when_it_lets_go(
    seed: int, end: str
) -> None:
    random = SeededRandom(seed)
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer, buffer_timeout_ms=0), gate(consumer, [location])
    source.request_partitions()
    kept: list[tuple[int, np.ndarray | pa.RecordBatch]] = []
    sent = 0
    # Thirty large batches, received in place, while user code keeps a view of every one of them.
    while len(kept) < 30:
        if sink.is_available:
            sink.emit(numbers(sent, 20_000))
            sent += 20_000
        cluster.loop.run_all()
        while isinstance(element := source.poll(), BatchElement):
            first, columns = values_of([element])[0], element.batch.columns()
            cut = random.randrange(100)
            view = columns.slice(cut, 5) if random.random() < 0.5 else columns.column(0).to_numpy()
            kept.append((first + (cut if isinstance(view, pa.RecordBatch) else 0), view))
            del columns, view, element
    match end:
        case "finish":
            sink.finish()
        case "close":
            source.close()
        case "kill":
            cluster.network.kill("a")
        case _:
            sink.fail(ValueError("user code raised"))
    sink.close()
    cluster.loop.run_all()
    source.close()
    producer.partitions.release_all()
    cluster.loop.run_all()
    region = source.receiver.region if source.receiver is not None else None
    assert region is not None and region.pinned_count <= region.pin_budget
    assert consumer.buffer_pool.count_idle_pages() < consumer.buffer_pool.total_pages
    while kept:
        first, view = kept.pop(random.randrange(len(kept)))
        value = view.column(0)[0].as_py() if isinstance(view, pa.RecordBatch) else int(view[0])
        assert value == first
        del view
    element = None
    cluster.assert_nothing_leaks()
