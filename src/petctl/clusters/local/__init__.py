"""The cluster that is this machine: a node is an agent process, a job is a directory with a supervisor.

    cluster.py     the Cluster protocol over job directories; runs in the user's command
    submit.py  making a job's directory and putting it in line, all or nothing
    build_record.py        Job -> exactly what will be started, as plain data: job.json
    commands.py        the words that start a supervisor and a node
    addresses.py   where a coordinator listens, and how others reach it
    job_directory.py      the job directory: names, atomic files, locks
    readers.py     status, events and logs, as they change
    job_status.py        the newest status, also of a job that waits; recognising one that nobody looks after any more
    finalize.py      ending a job that nobody looks after
    proxy.py       a port here that leads to a port of a node
    secrets.py     the file of secret values
    scheduler.py        whose turn it is, and whose supervisor is to be started: the rules of the line, pure
    slots.py       ... the claims on slots, as a SQLite file
    queue_claims.py      ... what the job directories say about them
    queue.py        ... looking at the line, which brings it forward
    spawn.py    starting a supervisor, by whoever finds that it is due
    gpus.py        dividing this machine's GPUs between the nodes of a job
    engines.py     podman or docker, for jobs with an image
    images.py      ... getting the image
    node_containers.py  ... the words that start a node in a container, entering one, removing what is left
    processes.py   finding and ending processes that a job left behind
    supervisor.py  one process per job that has slots: coordinates and keeps the nodes
    standby.py     ... the process that takes over when it is killed
    node_quota.py   ... how many nodes there should be now
    node_runner.py      ... starting, adopting, replacing and releasing them
    journal.py    ... writing down events and the newest status (when, is supervision/'s)
    endpoint.py   ... opening the coordinator's port
    pool.py       named clusters: made, resized, deleted; fleet_*.py: their description, nodes, setup and mounts

The user's commands and the supervisor are different processes, and meet only in the job's directory and on the
coordinator's control connection.
"""
