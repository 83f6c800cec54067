"""The glossary: each file that it names exists, and each thing stands in it once."""

import re
from typing import Final

from tests.architecture.floor_plan import PACKAGE, ROOT, source_files

GLOSSARY: Final = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_FILE: Final = re.compile(r"`((?:\w+/)+\w+\.py)`")
_AVOIDED: Final = re.compile(r"Do not\s+write\s+((?:\*[^*]+\*(?:\s+or\s+)?)+)")
_ROW: Final = re.compile(r"^\| (?!our word|word|---)([^|]+) \|", re.MULTILINE)


def test_each_file_that_it_names_exists() -> None:
    named = sorted(set(_FILE.findall(GLOSSARY)))
    assert len(named) >= 100
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_each_thing_stands_in_it_once() -> None:
    words = [row.partition(":")[0].strip() for row in _ROW.findall(GLOSSARY)]
    assert sorted(word for word in set(words) if words.count(word) > 1) == []


def test_each_row_names_a_file() -> None:
    rows = [line for line in GLOSSARY.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith(("| our word", "| word", "| ---"))]
    assert [row for row in rows if not _FILE.search(row)] == []


def test_words_that_it_tells_to_avoid_are_not_in_the_package() -> None:
    avoided = {
        " ".join(word.split())
        for found in _AVOIDED.findall(GLOSSARY)
        for word in re.findall(r"\*([^*]+)\*", found)
    }
    assert {"stored stream", "shuffle server"} <= avoided
    texts = {file: " ".join(file.read_text(encoding="utf-8").split()) for file in source_files()}
    found = {str(file): word for file, text in texts.items() for word in avoided if word in text}
    assert found == {}
