"""DataFrames as bounded sources and as sinks: the parts that run in tasks.

Neighbours: `spark/dataframe_coordinator` and `spark/dataframe_commit` are the coordinators in the driver.
Start reading: `source`, then `sink`.
"""
