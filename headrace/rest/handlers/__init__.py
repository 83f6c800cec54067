"""Handlers of the REST routes: each calls the ClusterView and translates the answer into a model.

Duty: one file per group of routes; translations are pure functions next to the handlers that use them.
Neighbours: `routes` lists the handlers; `models` are the shapes.
Start reading: `parameters`.
"""
