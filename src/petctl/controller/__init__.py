"""Looking after a whole job, wherever that is done: by the local supervisor, or by the coordinator in a pod.

    traced_machine.py    the rendezvous machine, with somebody who looks on
    records.py     a job's events, the history that follows from them, the fields of its status
    builder.py     ... one status, from what the machine knows at the moment
    journal.py   ... the newest of these, kept up to date while the job runs
    plurals.py    numbers and what they count, in sentences

    cli.py         the words of petctl-agent.pyz: `coordinate`, and the agent's own
    options.py     ... those of `coordinate`
    init_process.py      process 1 of a coordinator's pod: starts the coordinator, again whenever it dies
    controller.py         the coordinator of a job in a pod
    job_files.py    ... what it is given: the record, token, certificate, code, secrets
    state_dir.py      ... what it leaves for the next process in the same pod
    publisher.py       ... its events on stdout, its status for whoever watches
    event_printer.py    ... lines for a stdout that may be slow
    termination_message.py     ... how the job ended, in the container's termination message

Standard library and Python 3.9 only: it is part of `petctl-agent.pyz`. It knows nothing of any cluster's interface, and
starts no node: whoever uses it does.
"""
