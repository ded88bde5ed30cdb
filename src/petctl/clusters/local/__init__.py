"""The cluster that is this machine: a node is an agent process, a job is a directory with a supervisor.

    cluster.py     the Cluster protocol over job directories; runs in the user's command
    plan.py        Job -> exactly what will be started, as plain data: job.json
    argv.py        the words that start a supervisor and a node
    addresses.py   where a coordinator listens, and how others reach it
    jobdir.py      the job directory: names, atomic files, locks
    reading.py     status, events and logs, as they change
    lost.py        recognising and burying a job that nobody looks after any more
    proxy.py       a port here that leads to a port of a node
    secrets.py     the file of secret values
    slots.py       how many nodes may run at once, and who is next
    gpus.py        dividing this machine's GPUs between the nodes of a job
    processes.py   finding and ending processes that a job left behind
    supervisor.py  one process per job: waits for slots, then coordinates and keeps the nodes
    standby.py     ... the process that takes over when it is killed
    allotment.py   ... how many nodes there should be now
    keeper.py      ... starting, adopting, replacing and releasing them
    recorder.py    ... writing down events and the newest status (when, is supervision/'s)
    listening.py   ... opening the coordinator's port

The user's commands and the supervisor are different processes, and meet only in the job's directory and on the
coordinator's control connection.
"""
