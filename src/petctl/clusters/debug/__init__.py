"""The smallest whole backend: jobs in the memory of this process, workers as processes of this machine.

    backend.py   what a kind of cluster supplies: to be read before a backend is written
    gang.py      one job: its workers are started, ended and restarted together, and it answers as a coordinator would
    options.py   what a job may say to a debug cluster alone

For tests that need a cluster and none in particular. Its jobs end with the process that submitted them.
"""
