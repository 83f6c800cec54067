"""Tools for tests of programs and of the runtime: harnesses, scripted gateways, simulation, lossy network, fault proxy.

Neighbours: may import everything but the hosts; tests import it, and the pages of the docs that it makes.
Start reading: `operator_harness`.
"""
