"""CpuAffinity: gives each TaskManager of a host processor cores of its own.

Two TaskManagers that exchange batches wake each other with every batch, and Linux moves a process woken over a
socket to the core of the waker, which it expects to sleep soon: both then share one core while others idle.
So each takes the first free place on its host, and runs only on the cores of that place. A place is held by an
abstract socket, which ends with its process and leaves no file.
"""

import logging
import math
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.core.config import ConfigOption, Settings

_LOG = logging.getLogger(__name__)

KEEP_TO_CORES: Final = ConfigOption(
    "headrace.taskmanager.keep-to-cores", bool, True,
    "Whether each TaskManager process runs only on processor cores of its own (Linux), so that two that exchange "
    "batches do not share one while others idle: one core, or two if there are at least four, but not fewer "
    "than it has slots, nor than set by `taskmanager.cpu.cores`.",
)  # fmt: skip
_SMALL_HOST_CORES: Final = 4
"""Number of cores from which each TaskManager gets two, for its task and its network thread; with fewer it gets one."""
_TAKERS_PER_CORE_MAX: Final = 16
"""Number of attempts per core after which a process runs without a place."""


@dataclass(frozen=True)
class CpuAffinity:
    """Cores of one place, reserved while `holder` is open."""

    cores: tuple[int, ...]
    holder: socket.socket

    def release(self) -> None:
        """Release the place for another process; this one stays on its cores."""
        self.holder.close()


def cores_of_place(place_index: int, cores: Sequence[int], width: int) -> tuple[int, ...]:
    """Return the cores of one place, `width` of `cores` each; indexes beyond the last place wrap around."""
    place_count = max(1, len(cores) // width)
    first = place_index % place_count * width
    return tuple(cores[first : first + width])


def width_of_places(core_count: int, settings: Settings) -> int:
    """Return the number of cores, out of `core_count`, that a TaskManager uses."""
    usual = 1 if core_count < _SMALL_HOST_CORES else 2
    slots = settings.get_option(NUMBER_OF_TASK_SLOTS)
    return max(usual, slots, math.ceil(settings.get_option(CPU_CORES)))


def take_place(settings: Settings) -> CpuAffinity | None:
    """Take a place for this process, on its main thread, before it starts other threads.

    None if it is switched off or not supported by the system, if there is only one place, or if none is free.
    """
    if not settings.get_option(KEEP_TO_CORES) or sys.platform != "linux":
        return None
    cores = sorted(os.sched_getaffinity(0))
    width = width_of_places(len(cores), settings)
    if width >= len(cores):
        return None
    for place_index in range(len(cores) * _TAKERS_PER_CORE_MAX):
        holder = _hold(place_index)
        if holder is not None:
            place = CpuAffinity(cores_of_place(place_index, cores, width), holder)
            os.sched_setaffinity(0, place.cores)
            _LOG.debug("running only on processor cores %s", place.cores)
            return place
    return None


def _hold(place_index: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0headrace-place-{os.getuid()}-{place_index}")
    except OSError:
        holder.close()
        return None
    return holder
