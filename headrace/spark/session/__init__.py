"""The SparkSession that hosts us: found or made, configured, guarded, and its JVM.

Programs import `spark_session` from here.
"""

from headrace.spark.session.session import spark_session

__all__ = ["spark_session"]
