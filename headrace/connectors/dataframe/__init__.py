"""DataFrames as bounded sources and as sinks: the parts that run in tasks.

Neighbours: `spark/dataframes/dataframe_coordinator` and `sink_coordinator` run in the driver.
Start reading: `source`, then `sink`.
"""
