"""Files as source and sink, on any file system that pyarrow knows.

Duty: FileSource and FileSink with PyFlink's builders; text record by record, Parquet in columns; compaction.
Start reading: `source`; for sinks `staging`, then `file_writer` (tasks) and `file_commit` (driver).
"""
