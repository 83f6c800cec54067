"""The SparkSession that hosts the cluster: found or created, configured and protected, with its JVM.

Programs import `spark_session` from here.
"""

from headrace.spark.session.session import spark_session

__all__ = ["spark_session"]
