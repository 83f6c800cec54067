"""PyFlink's `pyflink.datastream`, so that a program ports by changing its imports.

Re-exports of `api`, `functions`, `core` and `connectors`; no code of its own.
"""
