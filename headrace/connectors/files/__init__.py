"""Files as source and sink, on any file system that pyarrow knows.

Duty: FileSource and FileSink with PyFlink's builders; text record by record, Parquet in columns; compaction.
Rooms: `formats`, `source`, `sink`.
Start reading: `source/file_source`; for sinks `sink/staging`, then `sink/file_writer` (tasks) and `sink/file_commit`
(driver).
"""
