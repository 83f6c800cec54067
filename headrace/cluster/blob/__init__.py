"""Blobs: payloads of jobs that are too large for a message, stored in files and fetched once per TaskManager.

Neighbours: the Dispatcher retains and the JobMaster releases a job's blobs; TaskExecutors fetch them through the cache.
Start reading: `blob_server`, then `blob_cache`.
"""
