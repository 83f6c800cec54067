"""DataFrames as bounded sources and as sinks: the parts that run in tasks.

Neighbours: `spark/dataframes/coordinator` and `spark/dataframes/commit` are the coordinators in the driver.
Start reading: `source`, then `sink`.
"""
