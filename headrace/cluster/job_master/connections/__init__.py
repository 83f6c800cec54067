"""Connections of a JobMaster: TaskManagers, the ResourceManager and the shuffle master."""
