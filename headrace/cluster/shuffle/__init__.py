"""The JobManager's half of the shuffle plug-in.

`shuffle_master` has the interface and the built-in one; how a service is chosen by name
stands in cluster/task_executor/shuffle_service_loader.py, since its other half belongs to the data plane and is loaded
only where it is made.
"""
