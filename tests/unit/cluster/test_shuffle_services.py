"""Shuffle services are chosen by name; secrets that are given."""

from pathlib import Path

import pytest

from headrace.cluster.shuffle_master import CreditBasedShuffleMaster
from headrace.cluster.task_executor.shuffle_service_loader import (
    SHUFFLE_SERVICE_FACTORY,
    CreditBasedShuffleServiceFactory,
    load_shuffle_service_factory,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.cluster_secret import cluster_secret, given_identity
from headrace.core.security.tls import generate_identity
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from tests.unit.cluster.cluster_partition_samples import LOCATION
from tests.unit.network.exchange import partition_id


def test_without_a_choice_results_stay_on_task_managers() -> None:
    factory = load_shuffle_service_factory(Settings())
    assert isinstance(factory, CreditBasedShuffleServiceFactory)


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    settings = Settings({SHUFFLE_SERVICE_FACTORY.key: "celestial"})
    with pytest.raises(ConfigurationError, match=r"celestial.*known names: .*credit-based.*remote"):
        load_shuffle_service_factory(settings)


def test_the_built_in_master_has_nothing_to_release() -> None:
    master = CreditBasedShuffleMaster()
    kept = ShuffleDescriptor(partition_id(0), LOCATION)
    master.release_partitions_externally([kept])
    assert not kept.is_external


def test_a_secret_file_is_what_several_clusters_share(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ab" * 32 + "\n")
    file.chmod(0o600)
    settings = Settings({"headrace.security.secret-file": str(file)})
    assert cluster_secret(settings) == b"\xab" * 32
    assert cluster_secret(Settings()) != cluster_secret(Settings())


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("ab" * 32, 0o640, "other users may read it"),
        ("ab" * 16, 0o600, "16 bytes"),
        ("no hex", 0o600, "does not hold a secret"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(
    tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=reason):
        cluster_secret(Settings({"headrace.security.secret-file": str(file)}))


def test_a_secret_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        cluster_secret(Settings({"headrace.security.secret-file": "/nonexistent"}))


@pytest.mark.parametrize("key_first", [False, True])
def test_an_identity_file_holds_certificate_and_key_in_any_order(
    tmp_path: Path, key_first: bool
) -> None:
    identity = generate_identity(0)
    parts = [identity.certificate, identity.private_key]
    file = tmp_path / "identity.pem"
    file.write_bytes(b"".join(reversed(parts) if key_first else parts))
    file.chmod(0o600)
    given = given_identity(Settings({"headrace.security.identity-file": str(file)}))
    assert given is not None
    assert given.certificate.strip() == identity.certificate.strip()
    assert given.private_key.strip() == identity.private_key.strip()
