"""Folders in which drivers may elect their leader, and those that are refused."""

import logging
import sys
from pathlib import Path

import pytest
from pyarrow import fs

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.storage.conditional_writes import (
    S3ClientMissingError,
    S3ConditionalWrites,
)
from headrace.checkpoint.storage.file_systems import register_file_system
from headrace.cluster.high_availability.coordination import check_storage, storage_folder
from headrace.cluster.high_availability.options import (
    high_availability_type,
    is_highly_available,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError

STORE = "s3://KEYID:hush@bucket/ha?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"


def settings(directory: str, kind: str = "file") -> Settings:
    return Settings(
        {
            "high-availability.type": kind,
            "high-availability.storageDir": directory,
            "high-availability.cluster-id": "orders",
        }
    )


def test_each_cluster_has_a_folder_in_the_storage(tmp_path: Path) -> None:
    assert storage_folder(settings(str(tmp_path))) == str(tmp_path / "orders")


@pytest.mark.parametrize("kind", ["file", "zookeeper", "kubernetes"])
def test_a_store_that_writes_under_no_condition_is_refused_with_what_to_use_instead(
    kind: str, tmp_path: Path
) -> None:
    register_file_system(
        "plain", lambda uri: (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "ha")
    )
    with pytest.raises(ConfigurationError) as refused:
        check_storage(settings("plain://place/ha", kind))
    text = str(refused.value)
    assert "high-availability.storageDir" in text
    assert "a mounted shared one (NFS, CephFS)" in text
    assert "If-None-Match" in text
    assert "execution.checkpointing.dir" in text


def test_an_s3_store_that_ignores_conditions_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[str] = []

    def write(self: S3ConditionalWrites, path: str, *rest: object, **condition: str) -> bool:
        written.append(path)
        return True

    monkeypatch.setattr(S3ConditionalWrites, "_write", write)
    monkeypatch.setattr(S3ConditionalWrites, "_request", lambda *_: (204, None))
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigurationError) as refused:
        check_storage(settings(STORE.replace("bucket", "lax")))
    assert "hush" not in str(refused.value) + caplog.text
    assert "the bucket 'lax' ignores conditional writes" in caplog.text
    assert {path.rpartition("/")[0] for path in written} == {"lax/ha/orders"}


def test_a_store_that_is_away_is_told_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(CheckpointStorageError) as failed:
        check_storage(settings(STORE))
    assert "127.0.0.1:1" in str(failed.value)
    assert "hush" not in str(failed.value) + caplog.text


def test_the_client_of_s3_is_asked_for_by_name_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(S3ClientMissingError, match=r"pip install 'headrace\[s3\]'"):
        check_storage(settings(STORE.replace("KEYID", "OTHERID")))


def test_a_storage_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match=r"set high-availability\.storageDir"):
        storage_folder(settings(""))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, "NONE"),
        ({"high-availability.storageDir": "/ha"}, "file"),
        ({"high-availability.storageDir": "/ha", "high-availability.type": "NONE"}, "NONE"),
        ({"high-availability.storageDir": "/ha", "high-availability": "zookeeper"}, "zookeeper"),
    ],
)
def test_who_names_a_storage_elects_leaders_by_files_unless_something_else_is_set(
    given: dict[str, str], meant: str
) -> None:
    assert high_availability_type(Settings(given)) == meant
    assert is_highly_available(Settings(given)) == (meant != "NONE")
