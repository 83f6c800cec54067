"""Endpoints with one main thread each, and calls between them over loopback or TCP.

Duty: actors, fencing, proxies, message codec, registration, heartbeats; independent of the messages' content.
Neighbours: imports the ground; `gateways` states the contracts, `cluster` implements them.
Start reading: `endpoint`, then `server` (calls that arrive) and `service` (calls that are sent).
"""
