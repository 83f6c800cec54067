"""Dumps of threads that wait, that have ended, and that are too many or too deep."""

import threading

import pytest

from headrace.core.process import thread_dump as module
from headrace.core.process.thread_dump import ThreadInfo, thread_cpu_ns, thread_dump
from headrace.core.threads import own_thread_ids, start_thread


class Waiting:
    """A thread that waits until the test lets it go on, at the bottom of `depth` calls."""

    def __init__(self, name: str, depth: int = 0) -> None:
        self._began, self._go_on = threading.Event(), threading.Event()
        self.native_id = 0
        self._depth = depth
        self._thread = start_thread(name, self._run)
        self._began.wait()

    def _run(self) -> None:
        self.native_id = own_thread_ids().native_id
        self._wait_below(self._depth)

    def _wait_below(self, depth: int) -> None:
        if depth:
            self._wait_below(depth - 1)
        else:
            self._began.set()
            self._go_on.wait()

    def end(self) -> None:
        self._go_on.set()
        self._thread.join()


def named(dump: tuple[ThreadInfo, ...], name: str) -> ThreadInfo:
    (found,) = [info for info in dump if info.name == name]
    return found


def test_a_thread_stands_with_its_names_time_and_stack_the_last_call_last() -> None:
    waiting = Waiting("it waits")
    info = named(thread_dump(), "it waits")
    waiting.end()
    head, *stack = info.text.splitlines()
    assert head.startswith(f'"it waits" id {waiting.native_id} cpu ') and head.endswith(" daemon")
    assert "in _wait_below" in "".join(stack)
    assert "self._go_on.wait()" in info.text
    assert info.text.index("in _run") < info.text.index("self._go_on.wait()")


def test_the_main_thread_is_first_and_the_asking_thread_is_left_out() -> None:
    dumps: list[tuple[ThreadInfo, ...]] = []
    start_thread("it asks", lambda: dumps.append(thread_dump())).join()
    assert dumps[0][0].name == "MainThread"
    assert "it asks" not in {info.name for info in dumps[0]}


def test_too_many_threads_are_counted_instead_of_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_THREAD_COUNT_MAX", 1)
    waiting = [Waiting(f"waiting {number}") for number in range(2)]
    dump = thread_dump()
    for each in waiting:
        each.end()
    assert len(dump) == 2
    assert dump[1].name.startswith("… and ") and dump[1].name.endswith(" more")


def test_a_deep_stack_is_shortened_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TEXT_LENGTH_MAX", 600)
    waiting = Waiting("deep", depth=60)
    text = named(thread_dump(), "deep").text
    waiting.end()
    assert "characters left out" in text and len(text) < 900
    assert "threading.py" in text.splitlines()[-2], "the innermost call stands last"


def test_a_thread_that_has_ended_has_no_clock_and_breaks_nothing() -> None:
    waiting = Waiting("it ends")
    assert thread_cpu_ns(waiting.native_id) is not None
    waiting.end()
    while thread_cpu_ns(waiting.native_id) is not None:
        pass  # the kernel takes a moment longer than the interpreter
    assert thread_cpu_ns(1) is None, "of another process"
    assert thread_cpu_ns(1 << 80) is None


def test_the_clock_of_a_thread_goes_while_it_computes() -> None:
    native_id = own_thread_ids().native_id
    before = thread_cpu_ns(native_id)
    assert before is not None
    while (now := thread_cpu_ns(native_id)) is not None and now - before < 1_000_000:
        sum(range(100))
    assert now is not None and now - before >= 1_000_000
