"""Files that hold a secret: who may read them, and who may have made them."""

import os
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.cluster_secret import SECRET_FILE, cluster_secret, private_text


def a_file(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_a_secret_comes_from_a_file_of_its_owner_s(tmp_path: Path) -> None:
    name = a_file(tmp_path / "secret", b"0a" * 32 + b"\n")
    assert cluster_secret(Settings({SECRET_FILE.key: name})) == b"\x0a" * 32


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"0a" * 32, 0o640, "chmod 600"),
        (b"0a" * 32, 0o604, "chmod 600"),
        (b"\xff" * 32, 0o600, "cannot be read: 'ascii' codec"),
        (b"0a" * 31, 0o600, "holds 31 bytes instead of 32"),
        (b"secret", 0o600, "does not hold a secret"),
        (b"", 0o600, "holds 0 bytes"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(
    tmp_path: Path, content: bytes, mode: int, reason: str
) -> None:
    name = a_file(tmp_path / "secret", content, mode)
    with pytest.raises(ConfigurationError, match=reason) as refused:
        cluster_secret(Settings({SECRET_FILE.key: name}))
    assert name in str(refused.value)


def test_a_file_that_another_user_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = a_file(tmp_path / "secret", b"0a" * 32)
    status = os.stat(name)

    def of_another_user(descriptor: int) -> os.stat_result:
        return os.stat_result((*status[:4], 12345, *status[5:]))

    with monkeypatch.context() as foreign:
        foreign.setattr(os, "fstat", of_another_user)
        with pytest.raises(ConfigurationError, match=r"another user \(12345\) owns it"):
            private_text(SECRET_FILE, name)
