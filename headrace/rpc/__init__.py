"""Endpoints with one main thread each, and calls between them over loopback or TCP.

Duty: actors, fencing, proxies, message codec, registration, heartbeats; no knowledge of what is said.
Neighbours: imports the ground; `gateways` states the contracts, `cluster` implements them.
Start reading: `endpoint`, then `server` (what happens to a call that arrives) and `service` (how one is sent).
"""
