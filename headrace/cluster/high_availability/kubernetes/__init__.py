"""Election through a Lease of Kubernetes, and pointers to job graphs in a ConfigMap; needs `headrace[kubernetes]`.

`kubernetes_client` speaks with the API server; `kubernetes_leader` holds who leads, and the jobs.
"""
