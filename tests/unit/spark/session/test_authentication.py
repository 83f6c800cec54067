"""Spark's ports: which sessions leave them open, what the refusal says, and where the secret comes from."""

import re
from pathlib import Path

import pytest

from headrace.core.errors import ConfigurationError
from headrace.core.redaction import without_private_values
from headrace.spark.session.authentication import (
    AUTHENTICATION,
    UnknownSparkSecretError,
    exposure,
    missing_secret,
    without_unfit,
)
from headrace.spark.session.checklist import HOSTING_SETTINGS, ChecklistError, refuse_contradictions
from headrace.spark.session.program_sessions import UnobeyedSettingError

LOOPBACK = {"spark.driver.host": "127.0.0.1"}
OTHERS = {"spark.driver.host": "10.0.0.7"}
MASTERS = [
    "local[4]",
    "local-cluster[1,2,1024]",
    "spark://127.0.0.1:7077",
    "yarn",
    "k8s://https://h",
]


@pytest.mark.parametrize("master", MASTERS)
def test_a_session_with_our_settings_is_closed_to_strangers(master: str) -> None:
    conf = {"spark.master": master, **OTHERS, **AUTHENTICATION}
    assert exposure(conf, allows_unauthenticated=False) is None


@pytest.mark.parametrize("master", MASTERS)
def test_a_session_without_authentication_is_refused_with_what_to_add(master: str) -> None:
    with pytest.raises(ChecklistError) as caught:
        refuse_contradictions({"spark.master": master, **OTHERS})
    said = str(caught.value).split("\n", 1)[0]
    assert "spark.authenticate=false: everybody who reaches its ports can run code as you" in said
    added = dict(re.findall(r"\.config\('(.+?)', '(.+?)'\)", said))
    assert refuse_contradictions({"spark.master": master, **OTHERS, **added}) is not None
    assert ("spark.authenticate.secret" in said) == (master != "local[4]")


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h"])
def test_clear_text_between_hosts_is_refused(master: str) -> None:
    conf = {"spark.master": master, **OTHERS, "spark.authenticate": "true"}
    with pytest.raises(
        ChecklistError, match=r"spark\.network\.crypto\.enabled=false: .*clear text"
    ):
        refuse_contradictions(conf)
    refuse_contradictions({**conf, "spark.ssl.rpc.enabled": "true"})


def test_open_ports_are_taken_on_request_where_only_this_host_reaches_them() -> None:
    for master in ("local[4]", "local-cluster[1,2,1024]", "spark://localhost:7077,[::1]:7078"):
        conf = {"spark.master": master, **LOOPBACK}
        found = exposure(conf, allows_unauthenticated=True)
        assert found is not None and found.is_allowed
        told = [str(one) for one in refuse_contradictions(conf, allows_unauthenticated=True)]
        assert "spark.authenticate=false: every user of this host can run code as you" in told


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.master": "local[4]", **OTHERS},
        {"spark.master": "local[4]"},
        {"spark.master": "local[4]", **LOOPBACK, "spark.driver.bindAddress": "0.0.0.0"},
        {"spark.master": "spark://h:7077", **LOOPBACK},
        {"spark.master": "yarn", **LOOPBACK},
    ],
)
def test_open_ports_that_others_reach_are_refused_on_request_too(conf: dict[str, str]) -> None:
    found = exposure(conf, allows_unauthenticated=True)
    assert found is not None and not found.is_allowed


def test_a_cluster_of_our_own_gets_a_new_secret_each_time() -> None:
    conf = {"spark.master": "local-cluster[1,2,1024]", **AUTHENTICATION}
    first, second = (missing_secret(conf, "") for _ in range(2))
    assert len(bytes.fromhex(first["spark.authenticate.secret"])) == 32
    assert first != second


@pytest.mark.parametrize("master", ["local[4]", "yarn", "k8s://https://h"])
def test_spark_makes_its_own_secret_where_it_can(master: str) -> None:
    assert missing_secret({"spark.master": master, **AUTHENTICATION}, "") == {}


def test_a_secret_that_the_jvm_has_from_a_file_of_its_own_stays() -> None:
    conf = {"spark.master": "spark://h:1", **AUTHENTICATION, "spark.authenticate.secret": "known"}
    assert missing_secret(conf, "") == {}


def test_a_standalone_cluster_s_secret_comes_from_a_file_of_the_owner_s(tmp_path: Path) -> None:
    conf = {"spark.master": "spark://h:7077", **AUTHENTICATION}
    with pytest.raises(UnknownSparkSecretError, match=r"headrace\.spark\.authenticate-secret-file"):
        missing_secret(conf, "")
    (tmp_path / "secret").write_text("standalone\n")
    secret_file = str(tmp_path / "secret")
    (tmp_path / "secret").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        missing_secret(conf, secret_file)
    (tmp_path / "secret").chmod(0o600)
    assert missing_secret(conf, secret_file) == {"spark.authenticate.secret": "standalone"}


def test_secrets_stay_off_the_command_line_of_the_jvm() -> None:
    public = {"spark.master": "local[4]", "spark.ui.enabled": "false", **AUTHENTICATION}
    private = {
        "spark.authenticate.secret": "a",
        "spark.ssl.keyPassword": "b",
        "spark.hadoop.fs.s3a.access.key": "c",
        "spark.hadoop.some.token": "d",
    }
    assert without_private_values({**public, **private}) == public


def test_errors_and_logs_of_settings_do_not_show_secrets() -> None:
    key = "spark.authenticate.secret"
    error = UnobeyedSettingError(key, "hush", "quiet")
    assert key in str(error)
    assert "hush" not in str(error) and "quiet" not in str(error)
    assert "spark.ui.enabled=true" in str(UnobeyedSettingError("spark.ui.enabled", "true", None))


def test_encryption_is_left_out_where_the_user_turned_authentication_off() -> None:
    conf = {**AUTHENTICATION, "spark.authenticate": "false", "spark.ui.enabled": "false"}
    assert "spark.network.crypto.enabled" not in without_unfit(conf, {})
    given = {"spark.network.crypto.enabled": "true"}
    assert "spark.network.crypto.enabled" in without_unfit(conf, given)
    assert without_unfit(AUTHENTICATION, {}) == AUTHENTICATION


def test_a_standalone_cluster_s_own_settings_choose_the_cipher() -> None:
    conf = {**AUTHENTICATION, "spark.master": "spark://h:7077"}
    key = "spark.network.crypto.cipher"
    assert set(conf) - set(without_unfit(conf, {})) == {key}
    assert without_unfit(conf, {key: conf[key]}) == conf


@pytest.mark.parametrize("pattern", ["(?i)password", "SECRET", r"\p{Alpha}+"])
def test_a_pattern_that_would_leave_secrets_in_the_event_log_is_refused(pattern: str) -> None:
    conf = {"spark.master": "local[4]", **AUTHENTICATION, "spark.redaction.regex": pattern}
    with pytest.raises(ChecklistError, match=r"spark\.redaction\.regex=.*spark\.headrace\.secret"):
        refuse_contradictions(conf)
    refuse_contradictions({**conf, "spark.redaction.regex": "(?i)secret|password"})
    refuse_contradictions({**conf, **HOSTING_SETTINGS})
