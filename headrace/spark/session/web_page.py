"""Spark's web page, started when it is first requested.

With `spark.ui.enabled` Spark starts a web server, and loads the classes of its pages, before the first job can run,
although most sessions end without anybody having looked. Spark collects the pages' data in either case: so the
session starts without the page, and it is later made as SparkContext and SharedState would have made it, except for its
listener: that is on loopback whatever the session's master, behind a filter that needs a key of Headrace.
Source: Spark, core/src/main/scala/org/apache/spark/SparkContext.scala and ui/SparkUI.scala;
sql/core/src/main/scala/org/apache/spark/sql/internal/SharedState.scala.
"""

import threading
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.core.errors import HostError
from headrace.spark.session.authentication import PAGE_KEY, PROTECTED_PAGE, new_page_key
from headrace.spark.session.jvm import JvmGoneError, jvm_calls, jvm_context, private_field
from headrace.spark.session.session_configuration import LOOPBACK

_PORT: Final = "spark.ui.port"
_STREAMING_PAGE: Final = "spark.sql.streaming.ui.enabled"
_THREAD_COUNT: Final = 200
"""Maximum number of threads of the page's server, as in Spark."""


class WebPageError(HostError):
    """Spark's web page did not start."""


class WebPage:
    """The web page of a session, on loopback. Spark stops it together with the session.

    `key`, in URL-safe base64, signs the requests that the filter accepts. It is in no setting of the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.key: Final = new_page_key()
        self._spark: Final = spark
        self._lock: Final = threading.Lock()
        self._address = ""
        self._failure: WebPageError | None = None

    def address(self) -> str:
        """Start the page if necessary and return its address, such as http://127.0.0.1:4040.

        Raises WebPageError if it cannot start; a failed start is not repeated.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if not self._address:
                try:
                    with jvm_calls():
                        self._address = _started(self._spark, self.key)
                # py4j takes a class that another version of Spark lacks for a package, which cannot be called.
                except (JvmGoneError, Py4JError, TypeError, ValueError) as error:
                    self._failure = WebPageError(f"Spark's page did not start: {error}")
                    raise self._failure from error
                except WebPageError as error:
                    self._failure = error
                    raise
            return self._address


def _started(spark: SparkSession, key: str) -> str:
    """Start the page of `spark`; return its address."""
    context = jvm_context(spark.sparkContext)
    jvm: Any = getattr(spark.sparkContext, "_jvm")  # noqa: B009 - private, and named in few files
    shared: Any = getattr(spark, "_jsparkSession").sharedState()  # noqa: B009 - see above
    # By its field: py4j cannot list the methods of SparkEnv, which name classes that PySpark does not bring.
    security = private_field(jvm, "org.apache.spark.SparkEnv", "securityManager").get(context.env())
    # A copy: tasks and the event log are told the settings of the session.
    conf = context.conf().clone()
    for name, value in {**PROTECTED_PAGE, PAGE_KEY: key}.items():
        conf.set(name, value)
    page = jvm.org.apache.spark.ui.SparkUI.create(
        jvm.scala.Option.apply(context),
        context.statusStore(),
        conf,
        security,
        context.appName(),
        "",
        context.startTime(),
        context.version(),
    )
    if page.sslOptions().enabled():
        raise WebPageError(
            "Spark's page uses TLS, which the dashboard cannot forward: set spark.ssl.ui.enabled to false, as the "
            "page is on loopback"
        )
    # Spark's own `bind` would listen where SPARK_LOCAL_IP says, and everywhere without it.
    port = int(conf.get(_PORT, "0"))
    server = jvm.org.apache.spark.ui.JettyUtils.startJettyServer(
        LOOPBACK, port, page.sslOptions(), conf, "SparkUI", _THREAD_COUNT
    )
    try:
        getattr(page, "serverInfo_$eq")(jvm.scala.Option.apply(server))
        page.setAppId(context.applicationId())
        page.attachAllHandlers()
        jvm.org.apache.spark.sql.execution.ui.SQLTab(shared.statusStore(), page)
        # Spark stops the page that it finds here, and makes the tab of streaming queries where there was no query yet.
        found = jvm.scala.Option.apply(page)
        private_field(jvm, "org.apache.spark.SparkContext", "_ui").set(context, found)
        has_queries = str(spark.conf.get(_STREAMING_PAGE, "true")).lower() == "true"
        if has_queries and shared.streamingQueryStatusListener().isEmpty():
            _show_queries(spark, jvm, context, page)
    except BaseException:
        server.stop()
        private_field(jvm, "org.apache.spark.SparkContext", "_ui").set(
            context, jvm.scala.Option.empty()
        )
        raise
    return f"http://{LOOPBACK}:{page.boundPort()}"


def _show_queries(spark: SparkSession, jvm: Any, context: Any, page: Any) -> None:
    """Add the tab of streaming queries: for later queries, and for running ones with the data that they still hold."""
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
