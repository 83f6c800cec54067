#!/bin/sh
# What a container does: `driver …` and `executor` are what Spark asks of it on Kubernetes, anything else is a command.
# Spark's own images have such a script, pip's PySpark has none.
set -eu

case "${1:-}" in
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
    --deploy-mode client "$@"
  ;;
executor)
  # Options of the JVM are in variables with numbers, as one of them may hold blanks.
  set --
  while eval "option=\${SPARK_JAVA_OPT_$#-}" && [ -n "$option" ]; do
    set -- "$@" "$option"
  done
  exec java "$@" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$SPARK_CONF_DIR:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec "$@"
  ;;
esac
