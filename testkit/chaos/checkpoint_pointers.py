"""CheckpointPointers: judges from outside, in repeated looks, which checkpoint a job's storage names as the newest.

A leader takes the complete checkpoint with the largest id, or the one that the file `newest` names if a listing lags
behind. So both must name the same checkpoint at all times, and two leaders must never both write: otherwise two
processes, both following the rules, would continue from different checkpoints.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.storage.checkpoint_storage import ids_in
from headrace.checkpoint.storage.file_systems import child_uri, is_there, read_all
from headrace.checkpoint.storage.metadata_format import (
    METADATA_NAME,
    decode_metadata,
    is_abandonment,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.core.threads import start_thread

_MISTAKES_MAX: Final = 20


class Complete(NamedTuple):
    """A complete checkpoint: the lineage and the epoch of the leader that wrote it, and its whole metadata."""

    lineage: str
    epoch: int
    content: bytes


@dataclass(frozen=True)
class Look:
    """The storage of a job at one moment. `newest`: the id in the pointer file, read before the rest; or None."""

    newest: int | None = None
    complete: Mapping[int, Complete] = field(default_factory=dict[int, Complete])


class CheckpointPointers:
    """Judge of one job's storage. `mistakes`: the mistakes seen in any look, each once. Pure."""

    def __init__(self) -> None:
        self.mistakes: Final[list[str]] = []
        self.newest_seen = 0
        """The newest complete checkpoint seen in any look; 0: none."""
        self._seen: Final[dict[int, Complete]] = {}
        self._newest = 0

    def take(self, look: Look) -> None:
        """Judge one look together with those before it."""
        # New checkpoints in one look may have come in any order.
        epoch_before = max((one.epoch for one in self._seen.values()), default=0)
        for number, one in sorted(look.complete.items()):
            known = self._seen.setdefault(number, one)
            if known.content != one.content:
                self._add(f"checkpoint {number} was written twice, with different contents")
            if known is one and one.epoch < epoch_before:
                self._add(
                    f"checkpoint {number} of the leader of epoch {one.epoch} came after one of epoch {epoch_before}: "
                    "two leaders have written"
                )
        self._judge_pointer(look)
        self._judge_order()
        self.newest_seen = max(self._seen, default=0)

    def _judge_pointer(self, look: Look) -> None:
        if look.newest is None:
            return
        if look.newest < self._newest:
            self._add(f"the pointer went back from checkpoint {self._newest} to {look.newest}")
        self._newest = look.newest
        # At the end of the job all are deleted, in any order, including those that no look has seen.
        listed = max(look.complete, default=look.newest)
        if listed < look.newest and look.newest not in self._seen:
            self._add(
                f"the pointer names checkpoint {look.newest}, but the newest complete one is {listed}"
            )

    def _judge_order(self) -> None:
        lineages = sorted({one.lineage for one in self._seen.values()})
        if len(lineages) > 1:
            self._add(f"the job has {len(lineages)} lineages, each with a newest checkpoint")
        before, epoch = 0, 0
        for number, one in sorted(self._seen.items()):
            if one.epoch < epoch:
                self._add(
                    f"checkpoint {number} is of epoch {one.epoch}, and {before} before it of epoch {epoch}: "
                    "two leaders have written"
                )
            before, epoch = number, one.epoch

    def _add(self, mistake: str) -> None:
        if mistake not in self.mistakes and len(self.mistakes) < _MISTAKES_MAX:
            self.mistakes.append(mistake)


def look_at(folder_uri: str, key: Callable[[], MetadataKey]) -> Look:
    """Return a look at the folder of a job's checkpoints, without files deleted meanwhile. CheckpointStorageError."""
    content = _content_of(child_uri(folder_uri, "newest"))
    text = b"" if content is None else content.strip()
    complete: dict[int, Complete] = {}
    for number in ids_in(folder_uri):
        uri = child_uri(folder_uri, f"chk-{number}", METADATA_NAME)
        content = _content_of(uri)
        if content is not None and not is_abandonment(content):
            metadata = decode_metadata(content, key(), uri)
            complete[number] = Complete(metadata.lineage, metadata.epoch, content)
    return Look(int(text) if text.isdigit() else None, complete)


def _content_of(uri: str) -> bytes | None:
    if not is_there(uri):
        return None
    try:
        return bytes(read_all(uri))
    except CheckpointStorageError:
        if is_there(uri):
            raise
        return None


class PointerWatch:
    """Takes looks repeatedly, on a thread of its own, from `start` to `stop`."""

    def __init__(self, look: Callable[[], Look], pause_s: float) -> None:
        self.pointers: Final = CheckpointPointers()
        self._look: Final = look
        self._pause_s: Final = pause_s
        self._should_stop: Final = threading.Event()
        self._failure: BaseException | None = None
        self._thread: Final = start_thread("checkpoint pointers", self._run)

    def stop(self) -> tuple[str, ...]:
        """Take the last look, and return all mistakes, including failed looks."""
        self._should_stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return tuple(self.pointers.mistakes)

    def _run(self) -> None:
        try:
            while True:
                is_last = self._should_stop.wait(self._pause_s)
                self.pointers.take(self._look())
                if is_last:
                    return
        except Exception as error:
            self._failure = error
