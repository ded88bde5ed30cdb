"""Looking after a whole job, wherever that is done: by the local supervisor, or by the coordinator in a pod.

    observed.py    the rendezvous machine, with somebody who looks on
    records.py     a job's events, the history that follows from them, the fields of its status
    picture.py     ... one status, from what the machine knows at the moment
    chronicle.py   ... the newest of these, kept up to date while the job runs
    counting.py    numbers and what they count, in sentences

    cli.py         the words of petctl-agent.pyz: `coordinate`, and the agent's own
    options.py     ... those of `coordinate`
    parent.py      process 1 of a coordinator's pod: starts the coordinator, again whenever it dies
    pod.py         the coordinator of a job in a pod
    material.py    ... what it is given: the record, token, certificate, code, secrets
    memory.py      ... what it leaves for the next process in the same pod
    board.py       ... its events on stdout, its status for whoever watches
    printing.py    ... lines for a stdout that may be slow
    message.py     ... how the job ended, in the container's termination message

Standard library and Python 3.9 only: it is part of `petctl-agent.pyz`. It knows nothing of any cluster's interface, and
starts no node: whoever uses it does.
"""
