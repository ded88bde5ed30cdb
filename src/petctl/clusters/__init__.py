"""Where jobs run: one package per cluster kind, all behind the one protocol in `base.py`.

    base.py         the Cluster protocol, and how a cluster is found by its name
    settings.py       what ./petctl.yaml and ~/.config/petctl/config.yaml say about clusters
    task.py         Job -> what an agent and a coordinator must know of it
    certificate.py  the certificate of a coordinator that listens off loopback
    agent_archive.py      petctl-agent.pyz and petctl-operator.pyz
    render.py      what is made for a cluster, as text
    local/          this machine
    kubernetes/     a namespace of a cluster

A cluster starts agents, lists them, stops them and reads their logs. It contains no elastic logic, and imports its
own SDK only inside its own package, so that `petctl list` pays for none of them.
"""
