"""The way into the network thread: nothing that is posted is lost, and its order stays, whoever posts when."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from headrace.network.transport.socket_transport import NetworkThread

TIMEOUT_S = 10.0


@pytest.fixture
def network_thread() -> NetworkThread:
    return NetworkThread("network test")


def test_what_callbacks_post_runs_behind_what_was_there(network_thread: NetworkThread) -> None:
    seen: list[str] = []
    done = threading.Event()

    def first() -> None:
        network_thread.post(lambda: seen.append("posted by the first"))
        network_thread.post(done.set)
        seen.append("first")

    def both() -> None:
        network_thread.post(first)
        network_thread.post(lambda: seen.append("second"))

    network_thread.post(both)
    assert done.wait(TIMEOUT_S)
    network_thread.stop()
    assert seen == ["first", "second", "posted by the first"]


def test_others_have_a_turn_between_callbacks_that_post_themselves(
    network_thread: NetworkThread,
) -> None:
    has_had_a_turn = threading.Event()
    is_over = threading.Event()

    def again() -> None:
        if has_had_a_turn.is_set():
            is_over.set()
        else:
            network_thread.post(again)

    def begin() -> None:
        network_thread.call_later(1, has_had_a_turn.set)
        again()

    network_thread.post(begin)
    assert is_over.wait(TIMEOUT_S)
    network_thread.stop()


def test_nothing_is_lost_where_several_threads_post_while_others_run(
    network_thread: NetworkThread,
) -> None:
    seen: list[tuple[int, int]] = []

    def post_all(number: int) -> Callable[[], None]:
        def body() -> None:
            for turn in range(2000):
                network_thread.post(lambda turn=turn: seen.append((number, turn)))

        return body

    threads = [threading.Thread(target=post_all(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    network_thread.stop()
    assert len(seen) == 8000
    for number in range(4):
        assert [turn for who, turn in seen if who == number] == list(range(2000))


def test_a_callback_that_raises_leaves_the_others_their_turn(network_thread: NetworkThread) -> None:
    reported = threading.Event()
    network_thread.run(_report_to(reported), TIMEOUT_S)
    done = threading.Event()

    def fail() -> None:
        raise ValueError("wrong")

    def both() -> None:
        network_thread.post(fail)
        network_thread.post(done.set)

    network_thread.post(both)
    assert done.wait(TIMEOUT_S) and reported.wait(TIMEOUT_S)
    network_thread.stop()


async def _report_to(reported: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.set())


def test_what_is_posted_after_the_end_runs_at_once(network_thread: NetworkThread) -> None:
    network_thread.stop()
    seen: list[str] = []
    network_thread.post(lambda: network_thread.post(lambda: seen.append("inner")))
    assert seen == ["inner"]
