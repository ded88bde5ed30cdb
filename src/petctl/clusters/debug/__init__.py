"""The smallest whole cluster: jobs in the memory of this process, workers as processes of this machine.

    cluster.py   the Cluster protocol: what to read before writing a backend
    gang.py      one job: its workers are started, ended and started anew together

For tests that need a cluster and none in particular. Its jobs end with the process that submitted them.
"""
