"""Options of the REST endpoint. Keys and defaults are Flink's where the meaning is the same."""

import enum
from datetime import timedelta
from typing import Any, Final

from headrace.core.config import ConfigOption, SizeBytes


class RestAuthentication(enum.Enum):
    """Kinds of authentication of requests."""

    TOKEN = "token"
    NONE = "none"


REST_ENABLED: Final = ConfigOption(
    "rest.enabled",
    bool,
    True,
    "Whether a cluster serves REST and the dashboard.",
)
REST_PORT: Final = ConfigOption(
    "rest.port",
    str,
    "8081-8180",
    "Port of the REST endpoint and the dashboard: a port, or a range or list of which the first free one is taken.",
)
REST_BIND_PORT: Final = ConfigOption[str | None](
    "rest.bind-port",
    str,
    None,
    "Port, range or list to listen at, if it differs from `rest.port`.",
)
REST_BIND_ADDRESS: Final = ConfigOption(
    "rest.bind-address",
    str,
    "127.0.0.1",
    "Address at which the REST endpoint listens. Beyond this host it always uses TLS and requires the token.",
)
REST_ADDRESS: Final = ConfigOption[str | None](
    "rest.address",
    str,
    None,
    "Name or address under which clients reach the REST endpoint. Unset: the address at which it listens.",
)
REST_AUTHENTICATION: Final = ConfigOption(
    "rest.authentication",
    RestAuthentication,
    RestAuthentication.TOKEN,
    "`token`: each request needs the token of the cluster, which is stored in a file that only its owner may read. "
    "`none`: everybody who can connect may see and control everything; on loopback only.",
)
REST_ALLOWED_HOSTS: Final = ConfigOption(
    "headrace.rest.allowed-hosts",
    str,
    "",
    "Names of this endpoint, comma-separated, that requests may have in their `Host` header in addition to its own "
    "addresses, as behind a proxy.",
)
REST_MAX_CONTENT_LENGTH: Final = ConfigOption(
    "rest.server.max-content-length",
    SizeBytes,
    SizeBytes(104857600),
    "Maximum number of bytes in the body of a request.",
)
DASHBOARD_DIRECTORY: Final = ConfigOption(
    "headrace.rest.dashboard-directory",
    str,
    "",
    "A folder whose files are served instead of the dashboard, such as those of Flink's own web UI. Browsers then "
    "sign in at `/headrace`, which has Headrace's dashboard.",
)
ASYNC_STORE_DURATION: Final = ConfigOption(
    "rest.async.store-duration",
    timedelta,
    timedelta(minutes=5),
    "Time for which the result of a requested savepoint or checkpoint is kept.",
)
WEB_REFRESH_INTERVAL: Final = ConfigOption(
    "web.refresh-interval",
    timedelta,
    timedelta(seconds=3),
    "Time for which answers are cached; dashboards refresh at the same interval.",
)
WEB_SUBMIT_ENABLE: Final = ConfigOption[bool | None](
    "web.submit.enable",
    bool,
    None,
    "Whether a cluster accepts jobs and programs over REST. Unset: a session cluster does, the cluster of one "
    "program does not.",
)
WEB_CANCEL_ENABLE: Final = ConfigOption(
    "web.cancel.enable",
    bool,
    True,
    "Whether dashboards offer to cancel jobs, and browsers may do so. Commands with the token always may.",
)
WEB_ACCESS_CONTROL_ALLOW_ORIGIN: Final = ConfigOption(
    "web.access-control-allow-origin",
    str,
    "",
    "Origin whose pages may read answers; `*` is refused. Empty: only the dashboard itself.",
)
OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    REST_ENABLED,
    REST_PORT,
    REST_BIND_PORT,
    REST_BIND_ADDRESS,
    REST_ADDRESS,
    REST_AUTHENTICATION,
    REST_ALLOWED_HOSTS,
    REST_MAX_CONTENT_LENGTH,
    DASHBOARD_DIRECTORY,
    ASYNC_STORE_DURATION,
    WEB_REFRESH_INTERVAL,
    WEB_CANCEL_ENABLE,
    WEB_SUBMIT_ENABLE,
    WEB_ACCESS_CONTROL_ALLOW_ORIGIN,
)
"""Options of a cluster's REST endpoint, which are checked before it starts."""
CONNECTION_FILE: Final = ConfigOption(
    "headrace.rest.connection-file",
    str,
    "",
    "File with address, token and certificate of the cluster to which `execution.target: remote` submits. Unset: "
    "this user's file for `rest.address` and `rest.port`, or the only one on this machine.",
)
SESSION_NAME: Final = ConfigOption(
    "headrace.session.name",
    str,
    "",
    "Name of the session cluster on this machine to which `execution.target: session` submits. Unset: the only one.",
)
