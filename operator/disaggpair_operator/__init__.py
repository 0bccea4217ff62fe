"""The operator: DisaggPair objects become engines, a router and a status.

Stages: parse (`api`), observe, plan, apply, status. `plan`, `status`, `api`, `names` and `model`
are pure; only `kube` talks to Kubernetes and only `handlers` knows kopf.
"""
