"""Formats of files: text, Parquet and other columns, and the blocks that readers cut files into."""
