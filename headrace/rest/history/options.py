"""Options of archives and of the history server. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

ARCHIVE_DIRECTORY: Final = ConfigOption(
    "jobmanager.archive.fs.dir",
    str,
    "",
    "Folder, local or of an object store, in which a cluster writes one file for each job that has ended. Unset: no "
    "file is written.",
)
HISTORY_DIRECTORIES: Final = ConfigOption(
    "historyserver.archive.fs.dir",
    str,
    "",
    "Folders, comma-separated, whose archives the history server shows. Unset: that of `jobmanager.archive.fs.dir`.",
)
HISTORY_REFRESH_INTERVAL: Final = ConfigOption(
    "historyserver.archive.fs.refresh-interval",
    timedelta,
    timedelta(seconds=10),
    "Interval at which the history server reads its folders.",
    least=timedelta(milliseconds=1),
)
HISTORY_RETAINED_JOBS: Final = ConfigOption(
    "historyserver.archive.retained-jobs",
    int,
    -1,
    "Archives that the history server leaves in each folder; it deletes the oldest. -1: all stay.",
)
HISTORY_RETAINED_TTL: Final = ConfigOption[timedelta | None](
    "historyserver.archive.retained-ttl",
    timedelta,
    None,
    "Age at which the history server deletes an archive. Unset: archives are not deleted by age.",
)
HISTORY_CLEAN_EXPIRED: Final = ConfigOption(
    "historyserver.archive.clean-expired-jobs",
    bool,
    False,
    "Whether jobs whose archives are gone leave the list of the history server at once. Otherwise they stay in it, "
    "without details, until the server restarts.",
)
HISTORY_PORT: Final = ConfigOption(
    "historyserver.web.port",
    str,
    "8082",
    "Port of the history server: a port, or a range or list of which the first free one is taken.",
)
HISTORY_ADDRESS: Final = ConfigOption(
    "historyserver.web.address",
    str,
    "127.0.0.1",
    "Address at which the history server listens. Beyond this host it always uses TLS and requires the token.",
)
HISTORY_WORK_DIRECTORY: Final = ConfigOption(
    "historyserver.web.tmpdir",
    str,
    "",
    "Folder of this machine in which the history server stores the list of known archives, so that it starts "
    "quickly. Unset: `history` in HEADRACE_HOME or `~/.headrace`.",
)
