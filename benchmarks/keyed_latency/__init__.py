"""How long a record takes through one keyed shuffle, how fast that is, and what sets the two against each other.

`__main__` asks, `program` is the job, `report` and `pictures` make docs/latency_report.md.
"""
