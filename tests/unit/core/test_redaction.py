"""Secrets in settings and URIs, and where they might be shown."""

import logging

import pytest

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.connectors.postgres.options import JdbcConnectionOptions
from headrace.core.config import Settings
from headrace.core.configuration import Configuration
from headrace.core.errors import ConfigurationError
from headrace.core.redaction import (
    HIDDEN,
    DiscreetFormatter,
    is_private,
    shown_uri,
    shown_value,
    without_private_values,
)

WITH_KEY = "s3://AKIA:hush@bucket/job?region=eu-west-1&secret_key=hush"


@pytest.mark.parametrize(
    "key",
    [
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.store",
        "sasl.jaas.config",
        "high-availability.zookeeper.client.authorization",
        "my.passphrase",
        "my.token",
    ],
)
def test_values_of_settings_that_are_named_as_secrets_are_hidden(key: str) -> None:
    assert is_private(key)
    assert shown_value(key, "hush") == HIDDEN
    assert without_private_values({key: "hush", "parallelism.default": "2"}) == {
        "parallelism.default": "2"
    }


@pytest.mark.parametrize(
    "key",
    ["headrace.security.secret-file", "headrace.spark.authenticate-secret-file", "key.fields"],
)
def test_names_of_files_and_all_else_are_shown(key: str) -> None:
    assert shown_value(key, "value") == "value"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (WITH_KEY, "s3://AKIA:******@bucket/job?region=eu-west-1&secret_key=******"),
        ("postgresql://u:hush@h/db?user=u&password=hush", "postgresql://u:******@h/db?user=u&password=******"),
        ("spark://host:7077", "spark://host:7077"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("no URI: password=x", "no URI: password=x"),
    ],
)  # fmt: skip
def test_uris_are_shown_without_passwords(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown


def test_nothing_that_shows_settings_or_uris_shows_secrets() -> None:
    secrets = {"my.password": "hush", "execution.checkpointing.dir": WITH_KEY}
    shown = [
        str(ConfigurationError("my.password", "hush", "no")),
        str(CheckpointStorageError("write", WITH_KEY, "denied")),
        repr(Settings(secrets)),
        repr(Configuration().set_string("my.password", "hush")),
        repr(JdbcConnectionOptions("jdbc:postgresql://u:hush@h/db", "u", "hush")),
        DiscreetFormatter().format(
            logging.LogRecord("a", logging.INFO, "f", 1, "restored from %s", (WITH_KEY,), None)
        ),
    ]
    assert [text for text in shown if "hush" in text] == []
    assert all(HIDDEN in text for text in shown)
