"""Timer queues of keyed state backends: a set of (time, key, namespace), polled in order of time.

An operator has one queue per time domain. `state.heap.timers` keeps them in memory, `state.rocksdb.timers` on disk.
Source: Flink KeyGroupedInternalPriorityQueue, PriorityQueueSetFactory.

Interface of keyed state backends: states by descriptor, found under the current key and namespace.

An operator owns one backend. It sets the current key before each record and each timer; the handles that user code
holds read and write under that key. States live in one of two scopes: `key_scope`, where an entry is addressed by
the key alone, and `window_scope`, where it is addressed by (key, namespace), the namespace being a window.

Source: Flink KeyedStateBackend, AbstractKeyedStateBackend.

From live state to chunks and back: what an operator's states offer when a checkpoint is taken.

A checkpoint has two parts. In the synchronous one, on the mailbox thread between two batches, each Snapshotable is
frozen: that must be cheap and must not see later changes. In the asynchronous one, on another thread, what was frozen
is written. Source: Flink SnapshotStrategyRunner, OperatorSnapshotFutures.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar

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
"""Whether the timers that are still due had better wait."""


class FrozenTimerQueue(Protocol):
    """The timers of a queue as they were when it was frozen. Any thread; read once."""

    is_by_key_group: ClassVar[bool]
    """Whether they come in order of key group."""

    def __iter__(self) -> Iterator[Timer]:
        """Every timer that a snapshot has to write as a row."""
        ...

    def release(self) -> None:
        """Let go of what was held for it. Idempotent."""
        ...


class TimerQueue(Protocol):
    """Timers of one domain of one operator on one subtask. Ties are in no stated order. Mailbox thread only."""

    def __len__(self) -> int:
        """Number of timers that wait, for tests: may look at each of them."""
        ...

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Add a timer; one that is there already stays one."""
        ...

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Remove a timer; no effect where there is none."""
        ...

    def next_time_ms(self) -> int | None:
        """Return the time of the first timer, or None without timers."""
        ...

    def fire_until(
        self, limit_ms: int, fire: TimerCallback, is_enough: IsEnough | None = None
    ) -> bool:
        """Remove and call back every timer with time <= `limit_ms`, also those that callbacks register meanwhile.

        `is_enough` is asked behind each of them; where it says so, the others stay. False where some did.
        """
        ...

    def freeze(self, options: CheckpointOptions) -> FrozenTimerQueue:
        """Return all timers as they are now; none where the backend's own snapshot has them in its files. Cheap."""
        ...


S = TypeVar("S", bound=State)


class StateAccessError(HeadraceError):
    """Keyed state was used in a way that has no meaning: without a current key, or under a name of another kind.

    `misfit`: where the state `state_name` was given a value that is not of its declared type.
    """

    domain, recoverable = ErrorDomain.USER, False

    def __init__(
        self, text: str, state_name: str = "", misfit: RecordTypeError | None = None
    ) -> None:
        super().__init__(text)
        self.state_name = state_name
        self.misfit = misfit


class _NoKey:
    """Stands where no key is current; looking it up in any table raises, so look-ups need no check of their own."""

    def __hash__(self) -> NoReturn:
        raise StateAccessError(
            "keyed state was touched without a current key: use it while a record or a timer is handled, "
            "not in open() or close()"
        )

    def __repr__(self) -> str:
        return "NO_KEY"


NO_KEY: Any = _NoKey()


class EntryScope:
    """The address under which the handles of a scope look: the key, or the pair (key, namespace).

    Hot loops assign `entry` directly.
    """

    __slots__ = ("entry",)

    def __init__(self) -> None:
        self.entry: Any = NO_KEY


class Registered(Protocol):
    """A handle, as far as a second registration of its state's name concerns it."""

    kind: ClassVar[str]
    scope: EntryScope


def refuse_other_registration(
    name: str, registered: Registered, kind: str, scope: EntryScope
) -> None:
    """StateAccessError unless the state `name` is asked for again as it was registered."""
    if registered.kind != kind:
        raise StateAccessError(
            f"state '{name}' is already registered as {registered.kind} state: "
            f"give the {kind} state another name"
        )
    if registered.scope is not scope:
        raise StateAccessError(
            f"state '{name}' is already registered, once per key and once per window: use two names"
        )


class KeyedStateBackend(Protocol):
    """The keyed state of one operator on one subtask. Mailbox thread only."""

    key_scope: EntryScope
    window_scope: EntryScope
    event_clock: EventClock
    """What states with a time to live in event time go by; the operator moves it."""

    def set_current_key(self, key: Any) -> None:
        """Make `key` (hashable) current in the key scope."""
        ...

    def set_current_namespace(self, namespace: Any) -> None:
        """Make (current key, `namespace`) current in the window scope."""
        ...

    def get_state(self, descriptor: StateDescriptor, scope: EntryScope) -> State:
        """Return the handle of a state of `scope`; the kind is that of the descriptor's class.

        StateAccessError where the name was registered with another kind or scope.
        """
        ...

    def has_unclaimed(self, name: str) -> bool:
        """Whether a state of that name was restored which nobody has asked for."""
        ...

    def begin_batch(self, row_count: int) -> None:
        """A batch (or timers, 0 rows) is going to be handled: time to live counts from now until `end_batch`."""
        ...

    def end_batch(self) -> None:
        """The batch is handled: no key is current any more."""
        ...

    def merge_namespaces(
        self, descriptor: StateDescriptor, target: Any, sources: Sequence[Any]
    ) -> None:
        """Move what the current key has in `sources` of the window scope into `target`.

        Lists are concatenated, reducing and aggregating states merged; other kinds cannot be merged.
        """
        ...

    def create_timer_queue(self, name: str) -> TimerQueue:
        """Return the timers called `name`; what the backend's own files hold of them is there again. Once per name."""
        ...

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        """Return the keys that have an entry in a state of the key scope, in no order."""
        ...

    def key_count(self, name: str) -> int:
        """Number of entries of the state `name`, for tests and metrics."""
        ...


class StateNotStorableError(HeadraceError):
    """A state holds a value that cannot be written under its type: no later snapshot could be written either."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator_name: str, reason: str) -> None:
        super().__init__(f"operator '{operator_name}' keeps what cannot be stored: {reason}")
        self.operator_name = operator_name


class FrozenState(Protocol):
    """State as it was at the synchronous part."""

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """Write it; on a thread other than the task's. Once."""
        ...

    def discard(self) -> None:
        """It is written, or the checkpoint was aborted: let go of what was held for it. Idempotent, any thread."""
        ...


class Snapshotable(Protocol):
    """Some state of one operator."""

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> FrozenState:
        """Return the state as it is now. Mailbox thread; cheap."""
        ...

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """A checkpoint is published: what it stored may be referred to by increments. Mailbox thread."""
        ...

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint came to nothing: what it stored must not be referred to. Mailbox thread."""
        ...


class FrozenPart:
    """Frozen state of an operator, which is named where a value cannot be written. See FrozenState."""

    def __init__(self, state: FrozenState, operator_name: str) -> None:
        self._state = state
        self._operator_name = operator_name

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """See FrozenState. StateNotStorableError."""
        try:
            return self._state.write(writer)
        except RecordTypeError as error:
            raise StateNotStorableError(self._operator_name, str(error)) from error

    def discard(self) -> None:
        self._state.discard()
