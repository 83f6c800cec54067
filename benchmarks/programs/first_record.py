"""A program that says when its first record was where: `headrace run first_record.py DIRECTORY`.

Reads the text files of a directory, maps each line in Python and prints one JSON line of moments, seconds of the epoch.
"""

import json
import sys
import time

began = time.time()

from headrace.common import Types, WatermarkStrategy  # noqa: E402 (what imports take is part of it)
from headrace.connectors.files.formats.text_lines import StreamFormat  # noqa: E402
from headrace.connectors.files.source.file_source import FileSource  # noqa: E402
from headrace.datastream import StreamExecutionEnvironment  # noqa: E402

if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), sys.argv[1]
    ).build()
    stamped = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines").map(
        lambda line: (line, time.time()), output_type=Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    )
    submitted = time.time()
    with stamped.execute_and_collect("first record") as records:
        _, mapped = next(iter(records))
        seen = time.time()
        count = 1 + sum(1 for _ in records)
    moments = {"began": began, "submitted": submitted, "mapped": mapped, "seen": seen}
    print(json.dumps(moments | {"records": count}))
