"""Spark's web page, started when somebody first asks for it.

With `spark.ui.enabled` Spark starts a web server, and the classes of its pages, before the first job can run, although
most sessions end without anybody having looked. What the pages show Spark collects with and without them: so the
session starts without, and the page is made as SparkContext and SharedState would have made it.
Source: Spark, core/src/main/scala/org/apache/spark/SparkContext.scala and ui/SparkUI.scala;
sql/core/src/main/scala/org/apache/spark/sql/internal/SharedState.scala.
"""

import threading
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.core.errors import HostError
from headrace.core.security.tls import is_loopback
from headrace.rpc.tcp import join_host_port
from headrace.spark.session.jvm import JvmGoneError, jvm_calls, jvm_context, private_field

_STREAMING_PAGE: Final = "spark.sql.streaming.ui.enabled"


class WebPageError(HostError):
    """Spark's web page did not start."""


class WebPage:
    """The web page of a session, on loopback. Spark stops it together with the session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Final = spark
        self._lock: Final = threading.Lock()
        self._address = ""
        self._failure: WebPageError | None = None

    def address(self) -> str:
        """Return the page's address, as in http://127.0.0.1:4040, and start the page first.

        Raises WebPageError: what could not start is not tried again.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if not self._address:
                try:
                    with jvm_calls():
                        self._address = _started(self._spark)
                # py4j takes a class that another version of Spark lacks for a package, which cannot be called.
                except (JvmGoneError, Py4JError, TypeError) as error:
                    self._failure = WebPageError(f"Spark's page did not start: {error}")
                    raise self._failure from error
                except WebPageError as error:
                    self._failure = error
                    raise
            return self._address


def _started(spark: SparkSession) -> str:
    """Start the page of `spark`; return its address."""
    context = jvm_context(spark.sparkContext)
    jvm: Any = getattr(spark.sparkContext, "_jvm")  # noqa: B009 - private, and named in few files
    shared: Any = getattr(spark, "_jsparkSession").sharedState()  # noqa: B009 - see above
    # As the JVM sees it, which may have been started before it was set for this session.
    host = str(jvm.java.lang.System.getenv("SPARK_LOCAL_IP") or "")
    if not is_loopback(host):
        raise WebPageError(
            "Spark's page would listen beyond this host, as SPARK_LOCAL_IP was not set when its JVM was started: set "
            "it to 127.0.0.1 before the program makes its first SparkSession"
        )
    # By its field: py4j cannot list the methods of SparkEnv, which name classes that PySpark does not bring.
    security = private_field(jvm, "org.apache.spark.SparkEnv", "securityManager").get(context.env())
    page = jvm.org.apache.spark.ui.SparkUI.create(
        jvm.scala.Option.apply(context),
        context.statusStore(),
        context.conf(),
        security,
        context.appName(),
        "",
        context.startTime(),
        context.version(),
    )
    if str(page.scheme()) != "http://":
        raise WebPageError(
            "Spark's page speaks TLS, which is not passed on: set spark.ssl.ui.enabled to false, as it is on loopback"
        )
    page.setAppId(context.applicationId())
    page.bind()
    try:
        page.attachAllHandlers()
        jvm.org.apache.spark.sql.execution.ui.SQLTab(shared.statusStore(), page)
        # Spark stops the page that it finds here, and makes the tab of streaming queries where there was no query yet.
        found = jvm.scala.Option.apply(page)
        private_field(jvm, "org.apache.spark.SparkContext", "_ui").set(context, found)
        has_queries = str(spark.conf.get(_STREAMING_PAGE, "true")).lower() == "true"
        if has_queries and shared.streamingQueryStatusListener().isEmpty():
            _show_queries(spark, jvm, context, page)
    except BaseException:
        page.stop()
        raise
    return f"http://{join_host_port(host, page.boundPort())}"


def _show_queries(spark: SparkSession, jvm: Any, context: Any, page: Any) -> None:
    """Add the streaming queries of the session: those to come, and those that run with what they still know."""
    store = context.statusStore().store()
    listener = jvm.org.apache.spark.sql.streaming.ui.StreamingQueryStatusListener(
        context.conf(), store
    )
    manager: Any = getattr(spark, "_jsparkSession").streams()  # noqa: B009 - see above
    manager.addListener(listener)
    events = jvm.org.apache.spark.sql.streaming
    started = getattr(events, "StreamingQueryListener$QueryStartedEvent")
    told = getattr(events, "StreamingQueryListener$QueryProgressEvent")
    for query in manager.active():
        known = query.recentProgress()
        begun = known[0].timestamp() if known else str(jvm.java.time.Instant.now())
        listener.onQueryStarted(started(query.id(), query.runId(), query.name(), begun))
        for progress in known:
            listener.onQueryProgress(told(progress))
    statuses = jvm.org.apache.spark.sql.execution.ui.StreamingQueryStatusStore(store)
    jvm.org.apache.spark.sql.streaming.ui.StreamingQueryTab(statuses, page)
