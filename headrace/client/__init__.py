"""Clients in other processes than their cluster: they submit jobs over REST, and offer the whole JobClient.

Duty: a DispatcherGateway over REST, the executor `remote`, RestClusterClient for attaching to jobs, and
ClusterDescriptor, which finds, starts and ends clusters.
Neighbours: imports `api`, `gateways`, `cluster.high_availability` (who leads), the ground, and of `rest` the light
client; no web server, Spark or Java.
Start reading: `remote_executor`, then `rest_dispatcher`.
"""
