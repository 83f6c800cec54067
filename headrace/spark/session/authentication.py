"""Protects Spark's own ports from strangers, and hands secrets to Spark's tasks outside of closures.

Whoever can connect to Spark's ports runs code as the user who started Spark: an executor runs any code it is sent, and
the driver gives away the contents of closures. Spark leaves its ports open unless `spark.authenticate` is set. On
`local[n]`, YARN and Kubernetes it then makes a secret for itself; elsewhere every process must be told the same one.

A closure is a block that Spark sends to anybody who requests it, and writes to disks. Local properties of a job
travel in the message that starts a task, from the driver to the executor that runs it, over Spark's authenticated
connection, and from there to the Python worker alone: they carry the secret of the cluster, its key, and settings with
passwords. Source: Spark, SecurityManager.initializeAuth and getSecretKey; docs/security.md.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyspark import TaskContext
from pyspark.core.context import SparkContext

from headrace.core.config import ConfigOption
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.randomness import secret_token
from headrace.core.security.cluster_secret import private_text
from headrace.core.security.tls import TlsIdentity, is_loopback
from headrace.spark.master import parse_master, standalone_places
from headrace.spark.session.jvm import hide_property

AUTHENTICATE: Final = "spark.authenticate"
SECRET: Final = "spark.authenticate.secret"
ENCRYPT: Final = "spark.network.crypto.enabled"
_CIPHER: Final = "spark.network.crypto.cipher"
AUTHENTICATION: Final[Mapping[str, str]] = {
    AUTHENTICATE: "true",
    ENCRYPT: "true",
    # The default, counter mode, lets a man in the middle change bytes unnoticed.
    _CIPHER: "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Settings of a session that Headrace starts, unless the user gave another value."""

ALLOW_UNAUTHENTICATED: Final = ConfigOption(
    "headrace.spark.allow-unauthenticated",
    bool,
    default=False,
    doc="Accept a Spark session without `spark.authenticate` if only this host reaches Spark's ports: every user of "
    "the host can then run code as you. For machines with one user.",
)
SPARK_SECRET_FILE: Final = ConfigOption(
    "headrace.spark.authenticate-secret-file",
    str,
    default="",
    doc="A file with the `spark.authenticate.secret` of a standalone cluster, readable by its owner alone. Unset: "
    "the secret in `spark-defaults.conf`; on `local-cluster`, a new one for each session.",
)

PAGE_FILTERS: Final = "spark.ui.filters"
PAGE_FILTER: Final = "org.apache.spark.ui.JWSFilter"
PAGE_KEY: Final = f"spark.{PAGE_FILTER}.param.secretKey"
PAGE_SWITCH: Final = "spark.ui.enabled"
PROTECTED_PAGE: Final[Mapping[str, str]] = {
    PAGE_FILTERS: PAGE_FILTER,
    "spark.ui.contentSecurityPolicy.enabled": "true",
}
"""Settings of Spark's web page if Headrace starts it: it is read through the dashboard."""

REDACTION: Final = "spark.redaction.regex"
SECRETS_OF_TASKS: Final = "spark.headrace.secret"
"""Local property that carries secrets to tasks."""

_ENCRYPTION: Final = (ENCRYPT, "spark.ssl.rpc.enabled")
_TELLS_PROCESSES: Final = (
    f"; master and workers need them too, with the same {SECRET}, from a file that only its owner may read "
    f"(--properties-file), never from a command line"
)


class UnknownSparkSecretError(HostError):
    """An existing Spark cluster needs a secret that is not configured."""

    def __init__(self, master: str) -> None:
        super().__init__(
            f"the {SECRET} of Spark's master {master} is not configured: put it into a file (chmod 600) and set "
            f"{SPARK_SECRET_FILE.key} to its name. A cluster without a secret runs code for anyone who reaches its "
            f"ports: "
            f"give its master and workers {AUTHENTICATE}=true, {ENCRYPT}=true and a secret, in a file of properties "
            f"(--properties-file). On a machine that nobody else uses, {ALLOW_UNAUTHENTICATED.key}=true and "
            f"{AUTHENTICATE}=false allow a cluster without one"
        )


@dataclass(frozen=True)
class Exposure:
    """Setting that leaves Spark's ports open to others, and the reason why it matters.

    `is_allowed`: accepted by the user.
    """

    key: str
    reason: str
    is_allowed: bool = False


def exposure(conf: Mapping[str, str], *, allows_unauthenticated: bool) -> Exposure | None:
    """Return the setting that leaves the ports of a Spark application with configuration `conf` open, or None."""
    kind = parse_master(conf.get("spark.master", ""), 1)
    if is_true(conf, AUTHENTICATE):
        if kind.is_local or any(is_true(conf, key) for key in _ENCRYPTION):
            return None
        return Exposure(
            ENCRYPT,
            "the cluster's secret and its key would cross the network in clear text; set it to true in the session's "
            "builder" + _TELLS_PROCESSES,
        )
    open_to = (
        "every user of this host" if _is_for_loopback(conf) else "everybody who reaches its ports"
    )
    if allows_unauthenticated and _is_for_loopback(conf):
        return Exposure(AUTHENTICATE, f"{open_to} can run code as you", is_allowed=True)
    own = "" if kind.is_single_process else _TELLS_PROCESSES
    alone = (
        f"On a machine that nobody else uses, '{ALLOW_UNAUTHENTICATED.key}' accepts it as it is"
        if _is_for_loopback(conf)
        else f"'{ALLOW_UNAUTHENTICATED.key}' accepts it only with spark.driver.host=127.0.0.1 and a master on this host"
    )
    return Exposure(
        AUTHENTICATE,
        f"{open_to} can run code as you; add .config('{AUTHENTICATE}', 'true').config('{ENCRYPT}', 'true') to the "
        f"session's builder{own}, or use the session of headrace.spark.session.spark_session(), which has them. "
        f"{alone}",
    )


def unredacted(conf: Mapping[str, str]) -> str | None:
    """Return a key whose secret Spark would write to its event log, as the user's redaction pattern misses it."""
    pattern = conf.get(REDACTION)
    if pattern is None:
        return None
    try:
        found = re.compile(pattern)
    except re.error:  # Java's patterns have forms that Python's have not
        return SECRETS_OF_TASKS
    secrets = (SECRETS_OF_TASKS, SECRET, PAGE_KEY)
    return next((key for key in secrets if not found.search(key)), None)


def missing_page_key(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with a new key of the page's filter, if `conf` lacks one that a new session needs."""
    if conf.get(PAGE_FILTERS) != PAGE_FILTER or PAGE_KEY in conf:
        return {}
    return {PAGE_KEY: new_page_key()}


def new_page_key() -> str:
    """Return a new key for the page's filter, in URL-safe base64."""
    return urlsafe_b64encode(secret_token()).decode()


def missing_secret(conf: Mapping[str, str], secret_file: str) -> dict[str, str]:
    """Return the setting with the secret that a new session needs besides `conf`; empty if Spark creates its own.

    `conf` holds the settings that the JVM reads from its own files. UnknownSparkSecretError if a secret is needed and
    not configured; ConfigurationError if its file cannot be used.
    """
    master = conf.get("spark.master", "")
    is_standalone = standalone_places(master) is not None
    is_cluster_of_ours = parse_master(master, 1).executor_count is not None
    if SECRET in conf or not is_true(conf, AUTHENTICATE):
        return {}
    if is_cluster_of_ours:
        return {SECRET: secret_token().hex()}
    if not is_standalone:
        return {}
    if not secret_file:
        raise UnknownSparkSecretError(master)
    secret = private_text(SPARK_SECRET_FILE, secret_file)
    if not secret:
        raise ConfigurationError(SPARK_SECRET_FILE.key, secret_file, "it is empty")
    return {SECRET: secret}


def without_unfit(conf: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return `conf` without Headrace's settings that contradict the rest, unless they are `given`.

    Spark refuses encryption if authentication is off; the checklist refuses that first unless the user allows it.
    """
    unfit: set[str] = set()
    if not is_true(conf, AUTHENTICATE):
        unfit = set(AUTHENTICATION)
    elif standalone_places(conf.get("spark.master", "")) is not None:
        # Both ends must use the same setting, and the cluster's own settings decide.
        unfit = {_CIPHER}
    return {key: value for key, value in conf.items() if key not in unfit or key in given}


def _is_for_loopback(conf: Mapping[str, str]) -> bool:
    """Return whether only this host can connect to the application's ports."""
    master = conf.get("spark.master", "")
    places = standalone_places(master) or ()
    is_here = parse_master(master, 1).is_local or bool(places)
    hosts = [host for host, _ in places]
    hosts += [conf[key] for key in ("spark.driver.host", "spark.driver.bindAddress") if key in conf]
    return (
        is_here
        and "spark.driver.host" in conf
        and all(is_loopback(host.strip("[]")) for host in hosts)
    )


def is_true(conf: Mapping[str, str], key: str) -> bool:
    """Return whether a Spark setting is on; it is off if it is not set."""
    return conf.get(key, "false").strip().lower() == "true"


@dataclass(frozen=True)
class TaskSecrets:
    """Secrets for Spark tasks; `settings` are those of TaskManagers, empty for other tasks."""

    secret: bytes = field(repr=False)
    tls: TlsIdentity | None
    settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@contextmanager
def handed_to_tasks(context: SparkContext, secrets: TaskSecrets) -> Generator[None, None, None]:
    """Hand `secrets` to the tasks of every job that this thread submits within the block."""
    hide_property(context, SECRETS_OF_TASKS)
    context.setLocalProperty(SECRETS_OF_TASKS, msgspec.json.encode(secrets).decode())
    try:
        yield
    finally:
        context.setLocalProperty(SECRETS_OF_TASKS, None)  # pyright: ignore[reportArgumentType]


def received_secrets() -> TaskSecrets:
    """Return the secrets that were handed to the calling Spark task."""
    secrets = find_secrets()
    assert secrets is not None, "its job was submitted without secrets"
    return secrets


def find_secrets() -> TaskSecrets | None:
    """Return the secrets that were handed to the calling Spark task; None if there are none."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(SECRETS_OF_TASKS)
    return None if text is None else msgspec.json.decode(text, type=TaskSecrets)
