"""Looks after a whole job, wherever that is done: by the local supervisor, or by the coordinator in a pod.

    job_controller.py       JobController: the rendezvous of one job's nodes, its status and events, and its end
    status_builder.py       ... its status, from what the machine knows at the moment
    nodes.py, seat.py       the seams to who makes nodes, and to where the controller runs
    journals/               the seam to what is kept: events, the history that follows from them, the newest status
    signing.py              what nodes ask about stores

    cli.py                  the command line of petctl-agent.pyz: `coordinate`, `keep`, and the agent's own
    options.py              ... the options of `coordinate`
    init_process.py         process 1 of a coordinator's pod: starts the coordinator, again whenever it dies
    controller.py           the controller of a job in a pod, from its parts
    platform_nodes.py       ... nodes that the platform makes; pod_seat.py: ... its port, and whether a newer one has it
    job_files.py            ... what it is given: the record, token, certificate, code, secrets
    state_dir.py            ... what it leaves for the next process in the same pod
    termination_message.py  ... how the job ended, in the container's termination message
    kept_process.py         starts a coordinator or a node again where no platform does: `keep`

Standard library and Python 3.9 only: it is part of `petctl-agent.pyz`. It knows nothing of any cluster's interface, and
starts no node: the process that uses it does.
"""
