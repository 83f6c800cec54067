"""A settled interpreter: what is loaded stays, and is not looked through again."""

import gc

from headrace.core.process.interpreter import settle_interpreter


def test_what_was_there_before_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    try:
        settle_interpreter()
        assert gc.get_freeze_count() > before + 10_000
        assert len(gc.get_objects()) < 10_000
    finally:
        gc.unfreeze()
