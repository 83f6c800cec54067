"""Readers of Flink's documentation find each part by the name that it has there."""

import pytest

from tests.architecture.floor_plan import PACKAGE
from tests.architecture.literature import (
    BY_FILE_NAME,
    NAMES,
    files_in_the_glossary,
    files_named_like,
)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_found_by_file_name_or_in_the_glossary(name: str) -> None:
    found = files_in_the_glossary(name) or files_named_like(name)
    assert [file for file in found if (PACKAGE / file).is_file()]


@pytest.mark.parametrize("name", BY_FILE_NAME)
def test_the_best_known_are_found_by_file_name_alone(name: str) -> None:
    found, meant = files_named_like(name), files_in_the_glossary(name)
    assert found, f"no file's name says that it holds {name}"
    assert not meant or set(meant) & set(found), (
        f"{name} is in {meant}, and their names do not say so"
    )


def test_a_file_with_a_word_that_the_name_lacks_is_not_taken_for_it() -> None:
    assert files_named_like("MailboxProcessor") == ["task/mailbox.py"]
    assert not any("sharing" in file for file in files_named_like("SlotPool"))
    assert not files_named_like("CreditNotHeldHere")
