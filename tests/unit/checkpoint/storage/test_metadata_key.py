from pathlib import Path

import pytest

from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.metadata_key import MetadataKey, metadata_key
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError


def settings_with(path: Path) -> Settings:
    return Settings({KEY_FILE.key: str(path)})


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine" / "key"
    first = metadata_key(settings_with(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert metadata_key(settings_with(path)).key_id == first.key_id
    assert [file.name for file in path.parent.iterdir()] == ["key"]


def test_the_key_is_the_users_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    metadata_key(Settings())
    assert (tmp_path / ".headrace" / "checkpoint-key").exists()


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    metadata_key(settings_with(path))
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        metadata_key(settings_with(path))


def test_a_file_that_holds_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("abc")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        metadata_key(settings_with(path))


def test_a_key_fits_only_what_it_was_used_on() -> None:
    key, other = MetadataKey(b"a" * 32), MetadataKey(b"b" * 32)
    mac = key.mac_of(b"content")
    assert key.fits(b"content", mac)
    assert not key.fits(b"Content", mac)
    assert not other.fits(b"content", mac)
    assert not key.fits(b"content", "ü")
