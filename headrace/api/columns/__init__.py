"""Columns: expressions, built-in aggregates, whole rows and joins that operators compute on batches."""
