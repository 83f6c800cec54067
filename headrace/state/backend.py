"""Interfaces of keyed state backends and timer queues, and of their snapshots.

An operator owns one backend of keyed state. It sets the current key before each record and each timer; the handles
that user code holds read and write under that key. States live in one of two scopes: `key_scope`, where an entry is
addressed by the key alone, and `window_scope`, where it is addressed by (key, namespace), the namespace being a window.
Timers are a set of (time, key, namespace) in one queue per time domain, polled in order of time.

A snapshot has two parts. In the synchronous one, on the mailbox thread between two batches, each `Snapshotable` is
frozen: that must be cheap, and must not see later changes. In the asynchronous one, another thread writes the frozen
state. Source: Flink KeyedStateBackend, KeyGroupedInternalPriorityQueue, SnapshotStrategyRunner.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Protocol

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import ErrorDomain, HeadraceError, RecordTypeError
from headrace.functions.state import State, StateDescriptor
from headrace.state.ttl import EventClock

Timer = tuple[int, Any, Any]
"""(time, key, namespace)"""
TimerCallback = Callable[[int, Any, Any], None]
"""Called with (time, key, namespace) of a timer that fires."""
IsEnough = Callable[[], bool]
"""Returns whether timers that are still due should wait."""


class StateAccessError(HeadraceError):
    """Keyed state was used without a current key, or under a name that is registered with another kind of state.

    `misfit`: set if the state `state_name` was given a value that is not of its declared type.
    """

    domain, recoverable = ErrorDomain.USER, False

    def __init__(
        self, text: str, state_name: str = "", misfit: RecordTypeError | None = None
    ) -> None:
        super().__init__(text)
        self.state_name = state_name
        self.misfit = misfit


class _NoKey:
    """Placeholder if no key is current; looking it up in a table raises, so that look-ups need no check."""

    def __hash__(self) -> NoReturn:
        raise StateAccessError(
            "keyed state was used without a current key: use it while a record or a timer is handled, "
            "not in open() or close()"
        )

    def __repr__(self) -> str:
        return "NO_KEY"


NO_KEY: Any = _NoKey()


class EntryScope:
    """Address of the current entry of a scope: the key, or the pair (key, namespace).

    Hot loops assign `entry` directly.
    """

    __slots__ = ("entry",)

    def __init__(self) -> None:
        self.entry: Any = NO_KEY


class FrozenTimerQueue(Protocol):
    """Frozen timers of a queue. Any thread; read once."""

    is_by_key_group: ClassVar[bool]
    """True if timers come in order of key group."""

    def __iter__(self) -> Iterator[Timer]:
        """Yield every timer that a snapshot has to write as a row."""
        ...

    def release(self) -> None:
        """Release the resources that keep the frozen timers unchanged. Idempotent."""
        ...


class TimerQueue(Protocol):
    """Timers of one time domain of an operator on a subtask; equal times in any order. Mailbox thread only."""

    def __len__(self) -> int:
        """Return the number of timers; for tests, as it may examine each of them."""
        ...

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Add a timer; no effect if it is there already."""
        ...

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Remove a timer; no effect if there is none."""
        ...

    def next_time_ms(self) -> int | None:
        """Return the time of the first timer, or None without timers."""
        ...

    def fire_until(
        self, limit_ms: int, fire: TimerCallback, is_enough: IsEnough | None = None
    ) -> bool:
        """Remove and call back every timer with time <= `limit_ms`, also those that callbacks register.

        `is_enough` is called after each of them; if it returns True the others stay, and the result is False.
        """
        ...

    def freeze(self, options: CheckpointOptions) -> FrozenTimerQueue:
        """Return all present timers; none if the backend's own snapshot has them in its files. Cheap."""
        ...


class KeyedStateBackend(Protocol):
    """The keyed state of one operator on one subtask. Mailbox thread only."""

    key_scope: EntryScope
    window_scope: EntryScope
    event_clock: EventClock
    """Clock of states with a time to live in event time; the operator advances it."""

    def set_current_key(self, key: Any) -> None:
        """Make `key` (hashable) current in the key scope."""
        ...

    def set_current_namespace(self, namespace: Any) -> None:
        """Make (current key, `namespace`) current in the window scope."""
        ...

    def get_state(self, descriptor: StateDescriptor, scope: EntryScope) -> State:
        """Return the handle of a state of `scope`; the kind of state follows from the descriptor's class.

        StateAccessError if the name is registered with another kind or scope.
        """
        ...

    def has_unclaimed(self, name: str) -> bool:
        """Return whether a state of that name was restored and not requested yet."""
        ...

    def begin_batch(self, row_count: int) -> None:
        """Begin a batch (or timers, 0 rows): the clocks of time to live stand still until `end_batch`."""
        ...

    def end_batch(self) -> None:
        """End the batch: no key is current any more."""
        ...

    def merge_namespaces(
        self, descriptor: StateDescriptor, target: Any, sources: Sequence[Any]
    ) -> None:
        """Move the current key's entries of `sources` in the window scope into `target`.

        Lists are concatenated, reducing and aggregating states merged; other kinds cannot be merged.
        """
        ...

    def create_timer_queue(self, name: str) -> TimerQueue:
        """Return the queue of timers called `name`, with those restored from the backend's own files. Once per name."""
        ...

    def forget_keys(self) -> None:
        """Remove every entry of every state."""
        ...

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        """Return the keys that have an entry in a state of the key scope, in no order."""
        ...

    def key_count(self, name: str) -> int:
        """Return the number of entries of the state `name`, for tests and metrics."""
        ...


class StateNotStorableError(HeadraceError):
    """A state holds a value that cannot be written under its type, so that no later snapshot can be written."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator_name: str, reason: str) -> None:
        super().__init__(f"operator '{operator_name}' keeps state that cannot be stored: {reason}")
        self.operator_name = operator_name


class FrozenState(Protocol):
    """Frozen state of the synchronous part of a snapshot."""

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """Write the state, once, on a thread other than the task's."""
        ...

    def discard(self) -> None:
        """Release the state after it was written or after the checkpoint was aborted. Idempotent, any thread."""


class Snapshotable(Protocol):
    """A part of an operator's state that takes part in snapshots. Only `freeze` must be implemented."""

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> FrozenState:
        """Return the state as it is now. Mailbox thread; cheap."""
        ...

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Note a published checkpoint; later increments may refer to its files. Mailbox thread."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Note a failed checkpoint; no later snapshot may refer to its files. Mailbox thread."""


class FrozenPart:
    """Frozen state of an operator; the error for a value that cannot be written names the operator."""

    def __init__(self, state: FrozenState, operator_name: str) -> None:
        self._state = state
        self._operator_name = operator_name

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """Write the state. StateNotStorableError if a value does not fit its type."""
        try:
            return self._state.write(writer)
        except RecordTypeError as error:
            raise StateNotStorableError(self._operator_name, str(error)) from error

    def discard(self) -> None:
        self._state.discard()
