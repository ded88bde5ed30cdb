"""The cluster that is this machine: a node is an agent process, a job is a directory with a supervisor.

    backend.py        job directories as a Backend of ManagedCluster; runs in the user's command
    submit.py         makes a job's directory and puts it into the queue, all or nothing
    build_record.py   Job -> exactly what will be started, as plain data: job.json
    commands.py       the command lines of a supervisor and of a node
    job_directory.py  the job directory: names, atomic files, locks; record.py: the record and the status in it
    readers.py        status, events and logs, as they change
    job_status.py     the newest status, also of a queued job; recognises a job that no process looks after
    finalize.py       ends a job that no process looks after; delete.py: removes one that has ended
    processes.py      finds and ends processes that a job left behind
    addresses.py      where a coordinator listens, and how others reach it
    gpus.py           divides this machine's GPUs between the nodes of a job
    secrets.py        the file of secret values
    controller/       the supervisor: one process per job that has slots; its standby, the nodes that it runs
    queue/            which job gets slots, and when
    pools/            named clusters: made, resized, deleted
    containers/       nodes in containers: podman or docker

The user's commands and the supervisor are different processes, and meet only in the job's directory and on the
coordinator's control connection.
"""
