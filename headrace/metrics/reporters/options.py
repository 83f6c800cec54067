"""Options of metric reporters. `<name>` in a key is the name that the user gives to a reporter.

Source: Flink MetricOptions.
"""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, SizeBytes

REPORTER_PREFIX: Final = "metrics.reporter."
_NAMED: Final = f"{REPORTER_PREFIX}<name>."

REPORTERS: Final = ConfigOption(
    "metrics.reporters",
    str,
    "",
    "Names of the reporters to start, separated by commas or semicolons. Empty: all that have settings.",
)
FACTORY: Final = ConfigOption(
    f"{_NAMED}factory.class",
    str,
    "",
    "Kind of a reporter: prometheus, prometheuspushgateway, otel, log, jsonlines, or another one that a package "
    "offers; the name of Flink's class is accepted too. Empty: the reporter's own name is its kind.",
)
REPORTER_INTERVAL: Final = ConfigOption(
    f"{_NAMED}interval",
    timedelta,
    timedelta(seconds=10),
    "Time between two reports.",
    least=timedelta(milliseconds=100),
)
DELIMITER: Final = ConfigOption(
    f"{_NAMED}scope.delimiter",
    str,
    ".",
    "Character between the parts of a metric's whole name; by default metrics.scope.delimiter.",
)
INCLUDES: Final = ConfigOption(
    f"{_NAMED}filter.includes",
    str,
    "*:*:*",
    "Metrics that are reported: rules scope:name,name:type,type, separated by semicolons, such as "
    "*:numRecords*:counter. Omitted parts match everything.",
)
EXCLUDES: Final = ConfigOption(
    f"{_NAMED}filter.excludes",
    str,
    "",
    "Metrics that are not reported even if they are included.",
)
VARIABLE_EXCLUDES: Final = ConfigOption(
    f"{_NAMED}scope.variables.excludes",
    str,
    "",
    "Variables that are not reported as labels, such as job_id;task_attempt_num.",
)
VARIABLE_ADDITIONAL: Final = ConfigOption(
    f"{_NAMED}scope.variables.additional",
    str,
    "",
    "Labels added to all metrics, such as region:eu,stage:test.",
)
COMMON: Final = (
    FACTORY, REPORTER_INTERVAL, DELIMITER, INCLUDES, EXCLUDES, VARIABLE_EXCLUDES, VARIABLE_ADDITIONAL,
)  # fmt: skip
PORT: Final = ConfigOption(
    f"{_NAMED}port",
    str,
    "9249-9299",
    "prometheus: port, or range or list of ports of which each process uses the first free one.",
)
BIND_ADDRESS: Final = ConfigOption(
    f"{_NAMED}bind-address",
    str,
    "127.0.0.1",
    "prometheus: address on which to listen. There is no authentication: on any address but loopback, everybody who "
    "can reach it can read the metrics.",
)
FILTER_LABEL_VALUES: Final = ConfigOption(
    f"{_NAMED}filterLabelValueCharacters",
    bool,
    True,
    "prometheus, prometheuspushgateway: replace all characters except letters, digits, colons and underscores in "
    "values of labels.",
)
HOST_URL: Final = ConfigOption(
    f"{_NAMED}hostUrl",
    str,
    "",
    "prometheuspushgateway: URL of the gateway, such as http://host:9091.",
)
JOB_NAME: Final = ConfigOption(
    f"{_NAMED}jobName",
    str,
    "",
    "prometheuspushgateway: name of the job under which metrics are pushed.",
)
RANDOM_JOB_NAME: Final = ConfigOption(
    f"{_NAMED}randomJobNameSuffix",
    bool,
    True,
    "prometheuspushgateway: add a random suffix to the job name, so that processes do not overwrite each other.",
)
DELETE_ON_SHUTDOWN: Final = ConfigOption(
    f"{_NAMED}deleteOnShutdown",
    bool,
    True,
    "prometheuspushgateway: delete the pushed metrics when the process ends.",
)
GROUPING_KEY: Final = ConfigOption(
    f"{_NAMED}groupingKey",
    str,
    "",
    "prometheuspushgateway: further labels of the group, such as k1=v1;k2=v2.",
)
ENDPOINT: Final = ConfigOption(
    f"{_NAMED}exporter.endpoint",
    str,
    "http://127.0.0.1:4318",
    "otel: base URL of the collector, which accepts OTLP over HTTP; /v1/metrics and /v1/traces are appended. Headers "
    "and "
    "certificates come from the environment variables of OpenTelemetry.",
)
EXPORT_TIMEOUT: Final = ConfigOption(
    f"{_NAMED}exporter.timeout",
    timedelta,
    timedelta(seconds=10),
    "otel, prometheuspushgateway: timeout of one attempt.",
    least=timedelta(milliseconds=1),
)
SERVICE_NAME: Final = ConfigOption(
    f"{_NAMED}service.name", str, "headrace", "otel: service.name of the resource."
)
SERVICE_VERSION: Final = ConfigOption(
    f"{_NAMED}service.version", str, "", "otel: service.version of the resource."
)
REPORTER_DIRECTORY: Final = ConfigOption(
    f"{_NAMED}directory",
    str,
    "",
    "jsonlines: folder in which each process writes a file of its own.",
)
FILE_SIZE: Final = ConfigOption(
    f"{_NAMED}max-size",
    SizeBytes,
    SizeBytes(64 << 20),
    "jsonlines: size at which a file is renamed with the suffix .1, replacing the previous one.",
    least=SizeBytes(1024),
)
