"""Bounded programs in BATCH mode beside STREAMING mode, Spark SQL with pandas UDFs, and PyFlink's BATCH mode.

Start reading at `__main__`; `queries` says in words what each program computes.
"""
