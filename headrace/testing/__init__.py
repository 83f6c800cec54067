"""Tools for tests of programs: an operator harness, a cluster in one process, and a fault proxy for the network.

`operator_harness` runs one operator step by step, `operator_ways` runs it in all ways that must give the same result,
`minicluster_executor` runs whole programs in this process, without Spark, `fixtures` is a pytest plugin with both, and
`fault_proxy` stands between two data planes. Neighbours: may import everything but the hosts. The simulation and the
chaos suite are in `testkit/`. Start reading: `operator_harness`.
"""
