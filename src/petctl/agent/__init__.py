"""One node of a job: keeps the connection to the coordinator and supervises the local workers.

    node/        the node itself: guardian, agent, connection, rounds
    workers/     worker processes: started, watched, stopped
    warm/        restarts without imports: the zygote
    launchers/   what differs by launcher: elastic, torchrun, plain tasks, MPI
    layouts/     what a node has beside that for scripts of another system
    logs/        what workers print
    data/        code, mapped folders, results
    health/      progress, and why a worker failed
    task.py      what a node must know of its job

Standard library and Python 3.9 only; built into `petctl-agent.pyz`. Knows nothing of any cluster.
"""
