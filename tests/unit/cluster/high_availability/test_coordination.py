"""Folders in which drivers may elect their leader, and those that are refused."""

from pathlib import Path

import pytest

from headrace.cluster.high_availability.coordination import storage_folder
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError


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
def test_an_object_store_is_refused_with_what_to_use_instead(kind: str) -> None:
    store = "s3://bucket/ha?endpoint_override=http://127.0.0.1:1&region=us-east-1"
    with pytest.raises(ConfigurationError) as refused:
        storage_folder(settings(store, kind))
    text = str(refused.value)
    assert "high-availability.storageDir" in text
    assert "shared one that is mounted (NFS, CephFS)" in text
    assert "execution.checkpointing.dir" in text


def test_a_storage_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match=r"set high-availability\.storageDir"):
        storage_folder(settings(""))
