"""TaskManagers as Spark jobs: requested, watched and stopped one at a time, and their processes."""
