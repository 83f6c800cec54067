"""Thread dump: the call stack of every thread of this process at one moment, as text for people."""

import threading
import time
import traceback
from types import FrameType
from typing import Final

import msgspec

from headrace.core.threads import current_frames

_DEPTH_MAX: Final = 200
_TEXT_LENGTH_MAX: Final = 16_384
_THREAD_COUNT_MAX: Final = 256
_CLOCK_OF_THREAD: Final = 6
"""Linux: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED."""


class ThreadInfo(msgspec.Struct, frozen=True):
    """One thread: its name, and its native id, processor time and stack as text, the most recent call last."""

    name: str
    text: str


def thread_dump() -> tuple[ThreadInfo, ...]:
    """Return the call stack of every thread of this process, in the order of their start; at most 256 threads.

    If a task waits for another program, its last line is the waiting call. Source lines are read from files, so this
    call may block.
    """
    own_ident = threading.get_ident()
    frames = current_frames()
    # The stacks first, while no other thread moves on: reading their lines of source lets them run.
    stacks = {ident: _stack_of(frame) for ident, frame in frames.items() if ident != own_ident}
    del frames
    threads = {thread.ident: thread for thread in threading.enumerate()}
    known = [ident for ident in threads if ident in stacks]
    ordered = [*known, *(ident for ident in stacks if ident not in threads)]
    shown: list[ThreadInfo] = []
    for ident in ordered[:_THREAD_COUNT_MAX]:
        thread = threads.get(ident)
        name = f"thread {ident}" if thread is None else thread.name
        facts = [f'"{name}"']
        if thread is not None and thread.native_id is not None:
            facts.append(f"id {thread.native_id}")
            cpu_ns = thread_cpu_ns(thread.native_id)
            if cpu_ns is not None:
                facts.append(f"cpu {cpu_ns / 1e9:.3f} s")
        if thread is not None and thread.daemon:
            facts.append("daemon")
        shown.append(ThreadInfo(name, f"{' '.join(facts)}\n{_text_of(stacks[ident])}"))
    if len(ordered) > _THREAD_COUNT_MAX:
        shown.append(ThreadInfo(f"… and {len(ordered) - _THREAD_COUNT_MAX} more", ""))
    return tuple(shown)


def thread_cpu_ns(native_id: int) -> int | None:
    """Return the processor time of a thread of this process; None once it has ended.

    The number of a thread's clock is made from its native id, as the kernel defines it. Asking the C library for the
    clock of a thread that has ended would crash the process; the kernel only says that there is none.
    """
    try:
        return time.clock_gettime_ns((~native_id << 3) | _CLOCK_OF_THREAD)
    except (OSError, OverflowError):
        return None


def _stack_of(frame: FrameType) -> traceback.StackSummary:
    return traceback.StackSummary.extract(
        traceback.walk_stack(frame), limit=_DEPTH_MAX, lookup_lines=False
    )


def _text_of(stack: traceback.StackSummary) -> str:
    stack.reverse()
    text = "".join(stack.format())
    if len(text) > _TEXT_LENGTH_MAX:
        # The end shows the thread's current call, the beginning its owner.
        half = _TEXT_LENGTH_MAX // 2
        text = f"{text[:half]}\n  … {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text
