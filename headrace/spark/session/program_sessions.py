"""Applies the settings of the command line to the sessions that a program creates itself.

All ways to a session of Spark's classic API lead through the constructor of SparkContext: `SparkSession.builder`,
`SparkContext(…)` and `SparkContext.getOrCreate()`. Headrace wraps it while `headrace run` runs a program. Precedence:

    asked (the command line)  >  said (the program, to its builder)  >  spark-submit, spark-defaults.conf  >  defaults

`spark-submit` would let the program override its command line silently. With `headrace run`, `--master` moves a program
that names a master to another one, and a log line reports the replaced setting.
"""

import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.core.redaction import shown_value, without_private_values
from headrace.spark.master import given_by_user, local_master, refuse_unreachable_master
from headrace.spark.options import APPLICATION_NAME, MASTER_TIMEOUT
from headrace.spark.session.authentication import (
    SPARK_SECRET_FILE,
    missing_secret,
    without_unfit,
)
from headrace.spark.session.checklist import HOSTING_SETTINGS
from headrace.spark.session.java_runtime import ensure_java

_LOG: Final = logging.getLogger(__name__)
_MASTER: Final = "spark.master"
_APPLICATION_NAME: Final = "spark.app.name"
_SUBMITTED_UNASKED: Final = {_MASTER: "local[*]", "spark.ui.showConsoleProgress": "true"}
"""Settings that spark-submit sets by itself if the user sets none."""


class UnobeyedSettingError(HostError):
    """A Spark setting that a job needs and that its session, which exists already, was not created with."""

    def __init__(self, key: str, wanted: str, found: str | None) -> None:
        has = "has none" if found is None else f"has {shown_value(key, found)}"
        shown = shown_value(key, wanted)
        super().__init__(
            f"{key}={shown} is requested, but the SparkSession that jobs run on {has}: it was created before, "
            f"without this setting. Give it to that session's builder, as .config({key!r}, {shown!r}), or on the "
            f"command line "
            f"as 'headrace run -D {key}={shown}', or stop the session first"
        )
        self.key, self.wanted, self.found = key, wanted, found


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a SparkContext: `asked` overrides the program's own settings, `defaults` apply if nobody sets one.

    Defaults reach the JVM after its start, so that none is on its command line, which other users can read.
    """

    asked: Mapping[str, str]
    defaults: Mapping[str, str]
    master_timeout_s: float = 10.0
    secret_file: str = ""

    def replaced(self, said: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the program that the command line overrides."""
        return {
            key: said[key] for key, value in self.asked.items() if said.get(key, value) != value
        }

    def missing(self, known: Mapping[str, str], chosen: Iterable[str]) -> dict[str, str]:
        """Return the defaults that the `known` configuration lacks.

        Keys in `chosen` were set by command line or program.
        """
        taken = set(chosen) | {
            key for key, value in known.items() if _SUBMITTED_UNASKED.get(key) != value
        }
        return {key: value for key, value in self.defaults.items() if key not in taken}


def asked_of_session(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings among Headrace's: `spark.*`, and those that have a Headrace key."""
    given = Settings(settings)
    name = given.get_option(APPLICATION_NAME) if given.is_set(APPLICATION_NAME) else ""
    return {**({_APPLICATION_NAME: name} if name else {}), **given_by_user(given)}


def settings_of_program_sessions(settings: Mapping[str, str], cpu_count: int) -> SessionSettings:
    """Return the settings of a program's sessions under the command line's `settings`."""
    defaults = {**HOSTING_SETTINGS, _MASTER: local_master(Settings(settings), cpu_count)}
    timeout_s = Settings(settings).get_option(MASTER_TIMEOUT).total_seconds()
    secret_file = Settings(settings).get_option(SPARK_SECRET_FILE)
    return SessionSettings(asked_of_session(settings), defaults, timeout_s, secret_file)


def refuse_unobeyed(
    asked: Mapping[str, str], given: Mapping[str, str], found: Mapping[str, str]
) -> None:
    """Raise UnobeyedSettingError for the first setting that a session was not `given` and not `found` with.

    Spark rewrites some values, such as paths and ports: for these only the given value counts.
    """
    for key, wanted in asked.items():
        if wanted not in (given.get(key), found.get(key)):
            raise UnobeyedSettingError(key, wanted, found.get(key))


@contextmanager
def program_sessions(settings: SessionSettings) -> Generator[None, None, None]:
    """Within the block, create every SparkContext of this process, and every builder's session, with `settings`."""
    make_context = SparkContext.__init__
    make_session = SparkSession.Builder.getOrCreate
    signature = inspect.signature(make_context)
    logged: set[str] = set()
    building: set[str] | None = None
    """Keys that the program gave to the builder that is creating a session now."""

    def tell(said: Mapping[str, str]) -> None:
        for key, value in settings.replaced(said).items():
            if key not in logged:
                logged.add(key)
                _LOG.warning(
                    "%s=%s from the command line replaces %s, which the program sets for its SparkSession",
                    key,
                    shown_value(key, settings.asked[key]),
                    shown_value(key, value),
                )

    def init(context: SparkContext, *positional: Any, **named: Any) -> None:
        bound = signature.bind(context, *positional, **named)
        if bound.arguments.get("jsc") is None:
            inherited = {} if building is None else _said_by_jvm(building)
            said = {
                key: value
                for key, value in _said(bound.arguments).items()
                if inherited.get(key) != value
            }
            tell(said)
            bound.arguments |= {
                "conf": _configuration(settings, said),
                "master": None,
                "appName": None,
            }
        make_context(*bound.args, **bound.kwargs)

    def get_or_create(builder: Any) -> SparkSession:
        nonlocal building
        options: dict[str, Any] = getattr(builder, "_options")  # noqa: B009 - the session reads them once more
        tell({key: str(value) for key, value in options.items()})
        options.update({key: settings.asked[key] for key in options if key in settings.asked})
        building = set(options)
        try:
            return make_session(builder)
        finally:
            building = None

    _put(init, get_or_create)
    try:
        yield
    finally:
        _put(make_context, make_session)


def _put(init: Callable[..., None], get_or_create: Callable[..., SparkSession]) -> None:
    setattr(SparkContext, "__init__", init)  # noqa: B010 - methods of classes that are not ours
    setattr(SparkSession.Builder, "getOrCreate", get_or_create)  # noqa: B010


def _said(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a program passes to SparkContext; separate arguments override its conf."""
    conf: SparkConf | None = arguments.get("conf")
    said = {} if conf is None else {key: str(value) for key, value in conf.getAll()}
    named = {_MASTER: arguments.get("master"), _APPLICATION_NAME: arguments.get("appName")}
    return {**said, **{key: str(value) for key, value in named.items() if value}}


def _said_by_jvm(of_program: set[str]) -> dict[str, str]:
    """Return the settings that an earlier session left in the JVM, without the program's own keys."""
    if getattr(SparkContext, "_jvm", None) is None:
        return {}
    found = {key: str(value) for key, value in SparkConf().getAll()}
    return {key: value for key, value in found.items() if key not in of_program}


def _configuration(settings: SessionSettings, said: Mapping[str, str]) -> SparkConf:
    """Start the JVM with the settings of command line and program; then fill in the defaults."""
    chosen = {**said, **settings.asked}
    if _MASTER in chosen:
        refuse_unreachable_master(chosen[_MASTER], settings.master_timeout_s, SystemClock())
    ensure_java()
    _LOG.info(
        "Spark starts on %s",
        chosen.get(_MASTER) or settings.defaults.get(_MASTER, "its own master"),
    )
    at_start = SparkConf(loadDefaults=False)
    for key, value in without_private_values(chosen).items():
        at_start.set(key, value)
    getattr(SparkContext, "_ensure_initialized")(conf=at_start)  # noqa: B009 - starts the JVM unless it runs
    whole = SparkConf()
    for key, value in chosen.items():
        whole.set(key, value)
    known = {key: str(value) for key, value in whole.getAll()}
    completed = without_unfit({**known, **settings.missing(known, chosen)}, known)
    for key, value in {**completed, **missing_secret(completed, settings.secret_file)}.items():
        whole.set(key, value)
    return whole
