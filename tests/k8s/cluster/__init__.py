"""A real Kubernetes cluster on this machine, for tests and for work by hand; see docs/development-cluster.md.

Three machines, each a set of namespaces with an init of its own: `control` (etcd, API server, controller-manager,
scheduler, CoreDNS) and the nodes `node1` and `node2` (containerd, kubelet, kube-proxy). `__main__.py` is its command
line, `rise.py` tells how it goes up, `fall.py` how it goes down, `cluster.py` is what tests see. Nothing here knows
petctl.
"""
