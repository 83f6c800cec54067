"""The HTTP face: Flink's REST paths over the control-plane gateways. Nothing of it is there yet.

Duty: one table of routes with request and response, handlers, server and client.
Neighbours: imports `gateways` and the ground; hosts put it beside the dispatcher.
Start reading: what it will call is `gateways/dispatcher`.
"""
