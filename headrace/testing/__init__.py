"""Tools for tests of programs and of the runtime: harnesses, scripted gateways, simulation, lossy network.

Neighbours: may import everything but the hosts; only tests import it.
Start reading: `operator_harness`.
"""
