"""Names of PyFlink's DataStream API that Headrace has, by module, with the methods of classes.

JVM_ONLY are names that PyFlink wraps around Java objects: importable here, and refused when used.
"""

from typing import Final

EXPORTS: Final[dict[str, str]] = {
    "datastream": (
        "StreamExecutionEnvironment DataStream KeyedStream WindowedStream ConnectedStreams "
        "BroadcastStream BroadcastConnectedStream AsyncDataStream DataStreamSink MapFunction "
        "CoMapFunction FlatMapFunction CoFlatMapFunction ReduceFunction FilterFunction "
        "ProcessFunction KeyedProcessFunction CoProcessFunction KeyedCoProcessFunction "
        "WindowFunction ProcessWindowFunction AggregateFunction BroadcastProcessFunction "
        "KeyedBroadcastProcessFunction AsyncFunction RuntimeContext TimerService "
        "CheckpointingMode CheckpointConfig ExternalizedCheckpointRetention StateBackend "
        "HashMapStateBackend EmbeddedRocksDBStateBackend CustomStateBackend PredefinedOptions "
        "CheckpointStorage JobManagerCheckpointStorage FileSystemCheckpointStorage "
        "CustomCheckpointStorage RuntimeExecutionMode Window TimeWindow CountWindow "
        "GlobalWindow WindowAssigner MergingWindowAssigner TriggerResult Trigger TimeDomain "
        "KeySelector Partitioner SourceFunction SinkFunction MemorySize OutputTag "
        "AsyncRetryPredicate AsyncRetryStrategy"
    ),
    "datastream.state": (
        "ValueStateDescriptor ValueState ListStateDescriptor ListState MapStateDescriptor "
        "MapState ReducingStateDescriptor ReducingState AggregatingStateDescriptor "
        "AggregatingState ReadOnlyBroadcastState BroadcastState StateTtlConfig "
        "OperatorStateStore"
    ),
    "datastream.functions": (
        "RuntimeContext TimerService BaseBroadcastProcessFunction AllWindowFunction "
        "ProcessAllWindowFunction AsyncFunction AsyncRetryPredicate AsyncRetryStrategy"
    ),
    "datastream.data_stream": (
        "DataStream KeyedStream ConnectedStreams WindowedStream AllWindowedStream "
        "DataStreamSink CloseableIterator BroadcastStream BroadcastConnectedStream CachedDataStream"
    ),
    "common": (
        "Configuration ConfigOption ConfigOptions ExecutionConfig TypeInformation "
        "TypeSerializer Types SerializationSchema DeserializationSchema SimpleStringSchema "
        "ByteArraySchema Encoder CompletableFuture InputDependencyConstraint JobClient "
        "JobExecutionResult JobID JobStatus Row RowKind WatermarkStrategy Duration Instant "
        "Time AssignerWithPeriodicWatermarksWrapper"
    ),
    "datastream.connectors.kafka": "DeliveryGuarantee",
    "datastream.connectors.file_system": "BulkFormat",
    "datastream.slot_sharing_group": "MemorySize",
    "metrics": "MetricGroup Metric Counter Meter Distribution",
}

CLASSES: Final[dict[str, dict[str, str]]] = {
    "datastream.stream_execution_environment": {
        "StreamExecutionEnvironment": (
            "get_execution_environment get_config set_parallelism get_parallelism "
            "set_max_parallelism get_max_parallelism set_runtime_mode set_buffer_timeout "
            "get_buffer_timeout disable_operator_chaining is_chaining_enabled "
            "is_chaining_of_operators_with_different_max_parallelism_enabled "
            "get_checkpoint_config enable_checkpointing get_checkpoint_interval "
            "get_checkpointing_mode get_checkpointing_consistency_mode "
            "set_default_savepoint_directory get_default_savepoint_directory configure "
            "add_python_file set_python_requirements add_python_archive "
            "set_python_executable get_default_local_parallelism "
            "set_default_local_parallelism execute execute_async get_execution_plan "
            "from_source from_collection is_unaligned_checkpoints_enabled "
            "is_force_unaligned_checkpoints close"
        ),
    },
    "datastream.execution_mode": {
        "RuntimeExecutionMode": "",
    },
    "datastream.slot_sharing_group": {
        "MemorySize": (
            "of_mebi_bytes get_bytes get_kibi_bytes get_mebi_bytes get_gibi_bytes get_tebi_bytes"
        ),
    },
    "datastream.data_stream": {
        "DataStream": (
            "get_name name uid set_uid_hash set_parallelism set_max_parallelism get_type "
            "get_execution_environment get_execution_config force_non_parallel "
            "set_buffer_timeout start_new_chain disable_chaining slot_sharing_group "
            "set_description map flat_map key_by filter window_all union connect shuffle "
            "project rescale rebalance forward broadcast process "
            "assign_timestamps_and_watermarks partition_custom sink_to "
            "execute_and_collect print get_side_output cache"
        ),
        "DataStreamSink": (
            "name uid set_uid_hash set_parallelism set_description disable_chaining "
            "slot_sharing_group"
        ),
        "CloseableIterator": "next close",
        "KeyedStream": (
            "map flat_map reduce filter sum min max min_by max_by add_sink key_by process "
            "window count_window union connect project print partition_custom shuffle "
            "rescale rebalance forward broadcast set_parallelism name get_name uid "
            "set_uid_hash set_max_parallelism force_non_parallel set_buffer_timeout "
            "start_new_chain disable_chaining slot_sharing_group"
        ),
        "ConnectedStreams": "key_by map flat_map process",
        "BroadcastStream": "",
        "CachedDataStream": "invalidate cache",
        "BroadcastConnectedStream": "process",
        "WindowedStream": (
            "get_execution_environment get_input_type trigger allowed_lateness "
            "side_output_late_data reduce aggregate apply process"
        ),
        "AllWindowedStream": (
            "trigger allowed_lateness side_output_late_data reduce aggregate apply process"
        ),
    },
    "datastream.async_data_stream": {
        "AsyncDataStream": (
            "unordered_wait ordered_wait unordered_wait_with_retry ordered_wait_with_retry"
        ),
    },
    "datastream.async_retry_strategies": {
        "RetryPredicate": "",
        "NoRetryStrategy": "",
        "FixedDelayRetryStrategy": "",
        "ExponentialBackoffDelayRetryStrategy": "",
    },
    "datastream.functions": {
        "Function": "open close",
        "RuntimeContext": (
            "get_task_name get_number_of_parallel_subtasks "
            "get_max_number_of_parallel_subtasks get_index_of_this_subtask "
            "get_attempt_number get_task_name_with_subtasks get_job_parameter "
            "get_metrics_group"
        ),
        "KeyedStateStore": (
            "get_state get_list_state get_map_state get_reducing_state get_aggregating_state"
        ),
        "MapFunction": "map",
        "CoMapFunction": "map1 map2",
        "FlatMapFunction": "flat_map",
        "CoFlatMapFunction": "flat_map1 flat_map2",
        "ReduceFunction": "reduce",
        "AggregateFunction": "create_accumulator add get_result merge",
        "KeySelector": "get_key",
        "FilterFunction": "filter",
        "Partitioner": "partition",
        "ProcessFunction": "process_element",
        "KeyedProcessFunction": "process_element on_timer",
        "CoProcessFunction": "process_element1 process_element2",
        "KeyedCoProcessFunction": "process_element1 process_element2 on_timer",
        "BaseBroadcastProcessFunction": "",
        "BroadcastProcessFunction": "process_element process_broadcast_element",
        "KeyedBroadcastProcessFunction": "process_element process_broadcast_element on_timer",
        "WindowFunction": "apply",
        "AllWindowFunction": "apply",
        "ProcessWindowFunction": "process clear",
        "ProcessAllWindowFunction": "process clear",
        "AsyncFunction": "timeout",
        "AsyncRetryStrategy": (
            "can_retry get_backoff_time_millis get_retry_predicate no_restart fixed_delay "
            "exponential_backoff"
        ),
        "AsyncRetryPredicate": "result_predicate exception_predicate",
    },
    "datastream.timerservice": {
        "TimerService": (
            "current_processing_time current_watermark register_processing_time_timer "
            "register_event_time_timer delete_processing_time_timer "
            "delete_event_time_timer"
        ),
    },
    "datastream.time_domain": {
        "TimeDomain": "",
    },
    "datastream.output_tag": {
        "OutputTag": "",
    },
    "datastream.window": {
        "Window": "max_timestamp",
        "TimeWindow": "max_timestamp intersects cover get_window_start_with_offset merge_windows",
        "CountWindow": "",
        "GlobalWindow": "get",
        "WindowAssigner": "assign_windows get_default_trigger get_window_serializer is_event_time",
        "MergingWindowAssigner": "merge_windows",
        "TriggerResult": "is_fire is_purge",
        "Trigger": "on_element on_processing_time on_event_time can_merge on_merge clear",
        "TumblingEventTimeWindows": "of",
        "TumblingProcessingTimeWindows": "of",
        "SlidingEventTimeWindows": "of",
        "SlidingProcessingTimeWindows": "of",
        "EventTimeSessionWindows": "with_gap with_dynamic_gap",
        "ProcessingTimeSessionWindows": "with_gap with_dynamic_gap",
        "DynamicEventTimeSessionWindows": "with_dynamic_gap",
        "DynamicProcessingTimeSessionWindows": "with_dynamic_gap",
        "SessionWindowTimeGapExtractor": "extract",
        "GlobalWindows": "create",
        "CountTumblingWindowAssigner": "of",
        "CountSlidingWindowAssigner": "of",
        "EventTimeTrigger": "create",
        "ProcessingTimeTrigger": "create",
        "ContinuousEventTimeTrigger": "of register_next_fire_timestamp",
        "ContinuousProcessingTimeTrigger": "of register_next_fire_timestamp",
        "CountTrigger": "of",
        "PurgingTrigger": "of",
        "NeverTrigger": "",
        "TimeWindowSerializer": "",
        "CountWindowSerializer": "",
        "GlobalWindowSerializer": "",
    },
    "datastream.state": {
        "StateDescriptor": "get_name enable_time_to_live",
        "ValueStateDescriptor": "",
        "ListStateDescriptor": "",
        "MapStateDescriptor": "",
        "ReducingStateDescriptor": "get_reduce_function",
        "AggregatingStateDescriptor": "get_agg_function",
        "State": "clear",
        "ValueState": "value update",
        "AppendingState": "get add",
        "MergingState": "",
        "ListState": "update add_all",
        "ReducingState": "",
        "AggregatingState": "",
        "MapState": "get put put_all remove contains items keys values is_empty",
        "ReadOnlyBroadcastState": "get contains items keys values is_empty",
        "BroadcastState": "put put_all remove",
        "OperatorStateStore": "get_broadcast_state",
        "StateTtlConfig": (
            "new_builder get_update_type get_state_visibility get_ttl "
            "get_ttl_time_characteristic is_enabled get_cleanup_strategies"
        ),
    },
    "datastream.state_backend": {
        "StateBackend": "",
        "HashMapStateBackend": "",
        "EmbeddedRocksDBStateBackend": (
            "set_db_storage_paths get_db_storage_paths is_incremental_checkpoints_enabled "
            "set_predefined_options get_predefined_options set_options get_options "
            "get_number_of_transfer_threads set_number_of_transfer_threads"
        ),
        "PredefinedOptions": "",
    },
    "datastream.checkpoint_storage": {
        "CheckpointStorage": "",
        "JobManagerCheckpointStorage": "get_checkpoint_path get_max_state_size get_savepoint_path",
        "FileSystemCheckpointStorage": (
            "get_checkpoint_path get_savepoint_path get_min_file_size_threshold "
            "get_write_buffer_size"
        ),
    },
    "datastream.checkpoint_config": {
        "CheckpointConfig": (
            "is_checkpointing_enabled get_checkpointing_mode set_checkpointing_mode "
            "get_checkpoint_interval set_checkpoint_interval get_checkpoint_timeout "
            "set_checkpoint_timeout get_min_pause_between_checkpoints "
            "set_min_pause_between_checkpoints get_max_concurrent_checkpoints "
            "set_max_concurrent_checkpoints is_fail_on_checkpointing_errors "
            "set_fail_on_checkpointing_errors get_tolerable_checkpoint_failure_number "
            "set_tolerable_checkpoint_failure_number "
            "set_externalized_checkpoint_retention is_externalized_checkpoints_enabled "
            "get_externalized_checkpoint_retention is_unaligned_checkpoints_enabled"
        ),
    },
    "datastream.checkpointing_mode": {
        "CheckpointingMode": "",
    },
    "datastream.externalized_checkpoint_retention": {
        "ExternalizedCheckpointRetention": "",
    },
    "common.typeinfo": {
        "Types": (
            "STRING BYTE BOOLEAN SHORT INT LONG FLOAT DOUBLE CHAR BIG_INT BIG_DEC INSTANT "
            "SQL_DATE SQL_TIME SQL_TIMESTAMP PICKLED_BYTE_ARRAY ROW ROW_NAMED TUPLE "
            "PRIMITIVE_ARRAY BASIC_ARRAY OBJECT_ARRAY MAP LIST"
        ),
        "TypeInformation": "need_conversion to_internal_type from_internal_type",
        "RowTypeInfo": "get_field_names get_field_index get_field_types",
        "TupleTypeInfo": "get_field_types",
        "ListTypeInfo": "",
        "MapTypeInfo": "",
        "BasicTypeInfo": (
            "STRING_TYPE_INFO BOOLEAN_TYPE_INFO BYTE_TYPE_INFO SHORT_TYPE_INFO "
            "INT_TYPE_INFO LONG_TYPE_INFO FLOAT_TYPE_INFO DOUBLE_TYPE_INFO CHAR_TYPE_INFO "
            "BIG_INT_TYPE_INFO BIG_DEC_TYPE_INFO INSTANT_TYPE_INFO"
        ),
        "InstantTypeInfo": "need_conversion to_internal_type from_internal_type",
        "PrimitiveArrayTypeInfo": "",
        "BasicArrayTypeInfo": "",
        "ObjectArrayTypeInfo": "",
        "PickledBytesTypeInfo": "",
        "DateTypeInfo": "need_conversion to_internal_type from_internal_type",
        "TimeTypeInfo": "need_conversion to_internal_type from_internal_type",
        "TimestampTypeInfo": "need_conversion to_internal_type from_internal_type",
        "SqlTimeTypeInfo": "DATE TIME TIMESTAMP",
        "BasicType": "",
    },
    "common.types": {
        "Row": ("as_dict get_row_kind set_row_kind set_field_names get_fields_by_names of_kind"),
        "RowKind": "",
    },
    "common.time": {
        "Time": "to_milliseconds milliseconds seconds minutes hours days",
        "Duration": "of_days of_hours of_millis of_minutes of_nanos of_seconds",
        "Instant": "to_epoch_milli of_epoch_milli",
    },
    "common.watermark_strategy": {
        "WatermarkStrategy": (
            "with_timestamp_assigner with_idleness for_monotonous_timestamps "
            "for_bounded_out_of_orderness no_watermarks"
        ),
        "TimestampAssigner": "extract_timestamp",
    },
    "common.configuration": {
        "Configuration": (
            "from_dict get_string set_string parse_list_value get_integer set_integer "
            "get_boolean set_boolean get_float set_float get_bytearray set_bytearray "
            "key_set add_all_to_dict add_all contains_key to_dict remove_config"
        ),
    },
    "common.config_options": {
        "ConfigOptions": "key",
        "ConfigOption": "",
    },
    "common.execution_config": {
        "ExecutionConfig": (
            "set_auto_watermark_interval get_auto_watermark_interval get_parallelism "
            "set_parallelism get_max_parallelism set_max_parallelism "
            "get_task_cancellation_interval set_task_cancellation_interval "
            "get_task_cancellation_timeout set_task_cancellation_timeout "
            "enable_auto_generated_uids disable_auto_generated_uids "
            "has_auto_generated_uids_enabled enable_object_reuse disable_object_reuse "
            "is_object_reuse_enabled get_global_job_parameters set_global_job_parameters "
            "is_use_snapshot_compression set_use_snapshot_compression"
        ),
    },
    "common.job_client": {
        "JobClient": (
            "get_job_id get_job_status cancel stop_with_savepoint trigger_savepoint "
            "get_accumulators get_job_execution_result"
        ),
    },
    "common.completable_future": {
        "CompletableFuture": "cancel cancelled done result exception",
    },
    "common.job_execution_result": {
        "JobExecutionResult": (
            "get_job_id get_net_runtime get_accumulator_result get_all_accumulator_results"
        ),
    },
    "common.job_id": {
        "JobID": "",
    },
    "common.job_status": {
        "JobStatus": "is_globally_terminal_state is_terminal_state",
    },
    "common.serialization": {
        "SerializationSchema": "",
        "DeserializationSchema": "",
        "SimpleStringSchema": "",
        "ByteArraySchema": "",
        "Encoder": "simple_string_encoder",
    },
    "common.serializer": {
        "TypeSerializer": "serialize deserialize",
    },
    "metrics.metricbase": {
        "MetricGroup": "add_group counter gauge meter distribution",
        "Counter": "inc dec get_count",
        "Meter": "mark_event get_count",
        "Distribution": "update",
    },
    "datastream.connectors.base": {
        "Source": "",
        "Sink": "",
        "DeliveryGuarantee": "",
        "StreamTransformer": "apply",
        "SupportsPreprocessing": "get_transformer",
    },
    "datastream.connectors.number_seq": {
        "NumberSequenceSource": "",
    },
    "datastream.connectors.file_system": {
        "FileSource": "for_record_stream_format",
        "FileSourceBuilder": "monitor_continuously process_static_file_set build",
        "StreamFormat": "text_line_format",
        "FileSink": "for_row_format get_transformer",
        "BucketAssigner": "base_path_bucket_assigner date_time_bucket_assigner",
        "RollingPolicy": "default_rolling_policy on_checkpoint_rolling_policy",
        "OutputFileConfig": "builder get_part_prefix get_part_suffix",
    },
    "datastream.formats.json": {
        "JsonRowDeserializationSchema": "builder",
        "JsonRowSerializationSchema": "builder",
    },
}

JVM_ONLY: Final[dict[str, str]] = {
    "datastream.functions": "SourceFunction SinkFunction",
    "datastream.state_backend": "CustomStateBackend",
    "datastream.checkpoint_storage": "CustomCheckpointStorage",
    "common.typeinfo": "LocalTimeTypeInfo ExternalTypeInfo",
    "common.watermark_strategy": "AssignerWithPeriodicWatermarksWrapper",
    "common.input_dependency_constraint": "InputDependencyConstraint",
    "datastream.formats.csv": ("CsvRowDeserializationSchema CsvRowSerializationSchema"),
    "datastream.formats.avro": (
        "AvroSchema GenericRecordAvroTypeInfo AvroInputFormat AvroBulkWriters "
        "AvroRowDeserializationSchema AvroRowSerializationSchema"
    ),
    "datastream.formats.orc": "OrcBulkWriters",
    "datastream.formats.parquet": "AvroParquetReaders AvroParquetWriters",
    "datastream.connectors.file_system": ("StreamingFileSink"),
    "datastream.connectors.kafka": "FlinkKafkaConsumer FlinkKafkaProducer Semantic",
    "datastream.connectors.dynamic_kafka": (
        "DynamicKafkaSource DynamicKafkaSourceBuilder KafkaMetadataService "
        "SingleClusterTopicMetadataService KafkaStreamSubscriber KafkaStreamSetSubscriber "
        "StreamPatternSubscriber KafkaRecordDeserializationSchema"
    ),
    "datastream.connectors.elasticsearch": (
        "FlushBackoffType ElasticsearchEmitter ElasticsearchSinkBuilderBase "
        "Elasticsearch6SinkBuilder Elasticsearch7SinkBuilder ElasticsearchSink"
    ),
    "datastream.connectors.cassandra": (
        "CassandraSink ConsistencyLevel MapperOptions ClusterBuilder CassandraCommitter "
        "CassandraFailureHandler"
    ),
    "datastream.connectors.kinesis": (
        "KinesisShardAssigner KinesisDeserializationSchema WatermarkTracker "
        "PartitionKeyGenerator FlinkKinesisConsumer KinesisStreamsSink "
        "KinesisStreamsSinkBuilder KinesisFirehoseSink KinesisFirehoseSinkBuilder"
    ),
    "datastream.connectors.pulsar": (
        "PulsarSource PulsarSourceBuilder StartCursor StopCursor RangeGenerator PulsarSink "
        "PulsarSinkBuilder MessageDelayer TopicRoutingMode"
    ),
    "datastream.connectors.rabbitmq": "RMQConnectionConfig RMQSource RMQSink",
}

JVM_ONLY_SETTINGS: Final = (
    "enable_force_kryo disable_force_kryo is_force_kryo_enabled enable_generic_types "
    "disable_generic_types has_generic_types_disabled enable_force_avro "
    "disable_force_avro is_force_avro_enabled get_default_kryo_serializer_classes "
    "get_registered_kryo_types get_registered_pojo_types"
)
"""Methods of ExecutionConfig."""
