"""Options of log files. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, SizeBytes

LOG_DIR: Final = ConfigOption(
    "env.log.dir",
    str,
    "",
    "Folder on each host in which every cluster makes a folder of its own for log files. Unset: the cluster's "
    "temporary folder, which is deleted when the cluster ends; of a daemon ~/.headrace/logs.",
)
LOG_MAX: Final = ConfigOption(
    "env.log.max",
    int,
    10,
    "Full log files, and full files of output, that are kept of each process beside those that it writes.",
)
LOG_MAX_SIZE: Final = ConfigOption(
    "env.log.max-size",
    SizeBytes,
    SizeBytes(10 << 20),
    "Size at which a log file is full and a new one is begun.",
    least=SizeBytes(4 << 10),
)
LOG_FOLDERS_MAX: Final = ConfigOption(
    "headrace.log.folders-max",
    int,
    50,
    "Log folders that are kept in env.log.dir, or in ~/.headrace/logs. The next cluster that starts there removes "
    "older ones whose clusters have ended.",
    least=1,
)
LOG_FOLDERS_AGE: Final = ConfigOption(
    "headrace.log.folders-max-age",
    timedelta,
    timedelta(days=90),
    "Time since the last write after which the log folder of an ended cluster is removed by the next cluster that "
    "starts in the same place.",
    least=timedelta(hours=1),
)
LOG_LEVEL: Final = ConfigOption(
    "env.log.level",
    str,
    "INFO",
    "Least level at which Headrace's own loggers write into log files; those of the program keep the levels that the "
    "program gave them.",
    choices=("DEBUG", "INFO", "WARN", "ERROR"),
    synonyms=("WARNING",),
)
LOG_FORMAT: Final = ConfigOption(
    "headrace.log.format",
    str,
    "plain",
    "Format of log files: a text line for each message, or a JSON object on a line.",
    choices=("plain", "json"),
)
