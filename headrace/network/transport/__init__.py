"""Sockets: connections between TaskManagers, the server, the network thread and the tunnel through a proxy."""
