"""Election through a Lease of Kubernetes, and pointers to job graphs in a ConfigMap; needs `headrace[kubernetes]`.

`kubernetes_client` talks to the API server; `kubernetes_leader` stores the leader and the pointers to jobs.
"""
