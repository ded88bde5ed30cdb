"""What a job is.

What both sides share, on the standard library and Python 3.9 alone, for it is part of `petctl-agent.pyz`; nothing of
it asks anybody:

    task.py      a node's share of one, as it travels in the coordinator's welcome
    record.py    what was submitted, the same on every cluster
    status.py    where it stands
    events.py    what happened, one in a line of a file; sweeps have such files, too
    fields.py    plain JSON types to dataclasses and back: `decode` and `encode`

The submitting side's:

    spec/        the `Job`: what to run, as users say it
    file/        job files in and out: YAML and JSON, with the place of every mistake

Where a job runs is `petctl.clusters`' business, and what becomes of it `petctl.jobs`'.
"""
