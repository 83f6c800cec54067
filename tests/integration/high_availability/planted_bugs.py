"""Bugs that a driver plants into itself, one at a time, to see that the kills of leaders find them."""

import os
from collections.abc import Callable
from typing import Any, Final

from headrace.checkpoint.storage import lineages
from headrace.checkpoint.storage.checkpoint_storage import CheckpointsInFiles

VARIABLE: Final = "HEADRACE_TEST_PLANTED_BUG"


def point_before_publishing() -> None:
    """The pointer names a checkpoint that is not complete yet."""
    storage: Any = CheckpointsInFiles
    publish = storage.publish

    def point_and_publish(self: Any, metadata: Any, options: Any) -> Any:
        self._tell_newest(metadata.checkpoint_id)
        return publish(self, metadata, options)

    storage.publish = point_and_publish


def let_earlier_leaders_publish() -> None:
    """Nothing is put in the place of the metadata that a leader before may be about to write."""
    module: Any = lineages
    module._shut_out_earlier = lambda *_: ()


BUGS: Final[dict[str, Callable[[], None]]] = {
    "point-before-publishing": point_before_publishing,
    "let-earlier-leaders-publish": let_earlier_leaders_publish,
}


def plant_from_environment() -> None:
    """Plant the bug that the variable names, if it does."""
    if name := os.environ.get(VARIABLE):
        BUGS[name]()
