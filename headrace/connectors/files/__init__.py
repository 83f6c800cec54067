"""Text files as source and sink, on any file system that pyarrow knows.

Duty: FileSource and FileSink with PyFlink's builders. Start reading: `source`, then `sink`.
"""
