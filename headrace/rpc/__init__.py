"""Endpoints with one main thread each, and calls between them over loopback or TCP.

Duty: actors, fencing, proxies, message codec, heartbeats; no knowledge of what is said.
Neighbours: imports the ground; `gateways` states the contracts, `cluster` implements them.
Start reading: `endpoint`, then `service`.
"""
