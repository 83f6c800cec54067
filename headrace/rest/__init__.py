"""The HTTP interface: Flink's REST API over the control-plane gateways, and the dashboard.

Duty: one table of routes with request, response and handler; the server with its authentication; the client.
Neighbours: imports `gateways` and the ground; hosts run it next to the Dispatcher, the command line uses its client.
Start reading: `routes`, then `rest_server`.
"""
