"""Looks after a whole job, wherever that is done: by the local supervisor, or by the coordinator in a pod.

    status/                 events, the history that follows from them, the status of the moment
    traced_machine.py       the rendezvous machine, with a callback for what it does
    signing.py              what nodes ask about stores

    cli.py                  the command line of petctl-agent.pyz: `coordinate`, and the agent's own
    options.py              ... the options of `coordinate`
    init_process.py         process 1 of a coordinator's pod: starts the coordinator, again whenever it dies
    controller.py           the coordinator of a job in a pod
    job_files.py            ... what it is given: the record, token, certificate, code, secrets
    state_dir.py            ... what it leaves for the next process in the same pod
    scaling.py              ... size changes; seat.py: ... whether a newer coordinator has taken over
    termination_message.py  ... how the job ended, in the container's termination message

Standard library and Python 3.9 only: it is part of `petctl-agent.pyz`. It knows nothing of any cluster's interface, and
starts no node: the process that uses it does.
"""
