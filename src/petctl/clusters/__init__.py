"""Where jobs run: one package per cluster kind, all behind the one protocol in `base.py`.

    base.py           the Cluster protocol, and how a cluster is found by its name
    managed.py        ManagedCluster: all verbs of that protocol, once, over a Backend
    backend.py        Backend: the few things that a kind of cluster supplies
    printed.py        what coordinators and nodes print: events, lines of workers; a coordinator that is a thread
    node_ends.py      how nodes ended, and why others have not come
    provisioner.py    what makes clusters of a kind: petctl cluster create -k KIND
    debug/            the smallest backend, in memory
    local/            this machine
    kubernetes/       a namespace of a cluster, and the operator
    building.py       builds a job's record: what is the same for every cluster
    certificate.py    the certificate of a coordinator that listens off loopback
    agent_archive.py  petctl-agent.pyz and petctl-operator.pyz
    patience.py       how long a client that follows a job waits for its cluster
    port_forward.py   a local port that leads to a port of a node
    foreground.py     a command with this terminal, here or as a worker on a node
    archived_logs.py  logs of a job from its store

A cluster starts agents, lists them, stops them and reads their logs. It contains no elastic logic, and imports its
own SDK only inside its own package, so that `petctl list` pays for none of them.
"""
