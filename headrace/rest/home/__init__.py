"""The user's own folder of Headrace: connection files, processes without a REST endpoint, and supervisors."""
