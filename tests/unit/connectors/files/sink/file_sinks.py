"""Sinks to files, and batches for them."""

from pathlib import Path

from headrace.connectors.files.sink.buckets import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
)
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


NEVER = RollingPolicy.on_checkpoint_rolling_policy()


def sink(path: Path, policy: RollingPolicy = NEVER) -> FileSink:
    config = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build()
    return (
        FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(policy)
        .with_output_file_config(config)
        .build()
    )


def batch(*rows: tuple[str, int]) -> RecordBatch:
    return RecordBatch.of_rows(BatchType(PAIR), list(rows))
