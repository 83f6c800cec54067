"""Names of modules and classes that stored snapshots hold go on to mean what they meant.

Whoever moves or renames one of them leaves its old name in place. An alias is enough for what is unpickled; what is
part of a key in RocksDB's own files must also be pickled under its old name, or its state is never found again.
"""

import importlib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.core.config import Settings
from headrace.core.types.pickles import pickle_value
from tests.integration.stored_savepoints.persisted_names import names_of_headrace
from tests.integration.stored_savepoints.stored import STORED, Stored, unpack

pytestmark = pytest.mark.integration

every_snapshot = pytest.mark.parametrize("stored", STORED, ids=str)
IN_ROCKSDB = [one for one in STORED if one.name == "rocksdb-checkpoint"]
OF_KEYS = {"keys of states in RocksDB", "keys of timers in RocksDB"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    databases = tmp_path / "databases"
    databases.mkdir()
    return databases


def names_in(stored: Stored, folder: Path) -> dict[str, set[str]]:
    metadata = load_snapshot(unpack(stored), Settings({KEY_FILE.key: "key"})).metadata
    return names_of_headrace(metadata, folder)


def meaning(name: str) -> Any:
    """What a pickle finds under a name; ImportError, AttributeError."""
    module, _, path = name.partition(" ")
    return reduce(getattr, path.split("."), importlib.import_module(module))


@every_snapshot
def test_every_persisted_name_means_something(stored: Stored, folder: Path) -> None:
    found = names_in(stored, folder)
    names = {name for names in found.values() for name in names}
    assert names
    assert [name for name in sorted(names) if not callable(meaning(name))] == []


@pytest.mark.parametrize("stored", IN_ROCKSDB, ids=str)
def test_names_within_keys_of_rocksdb_are_those_that_are_written_today(
    stored: Stored, folder: Path
) -> None:
    found = names_in(stored, folder)
    names = {name for place in OF_KEYS & found.keys() for name in found[place]}
    assert len(names) > 2
    for name in sorted(names):
        module, _, path = name.partition(" ")
        pickled = pickle_value(meaning(name))
        assert module.encode() in pickled and path.rpartition(".")[2].encode() in pickled, name
