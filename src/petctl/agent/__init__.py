"""One node of a job: keeps the connection to the coordinator and supervises the local workers.

Standard library and Python 3.9 only; built into `petctl-agent.pyz`. Knows nothing of any cluster.
"""
