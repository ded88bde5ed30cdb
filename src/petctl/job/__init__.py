"""What a job is.

    task.py    a node's share of one, as it travels in the coordinator's welcome; standard library, Python 3.9
    spec/      the `Job`: what to run, as users say it
    file/      job files in and out: YAML and JSON, with the place of every mistake

Where a job runs is `petctl.clusters`' business, and what becomes of it `petctl.jobs`'.
"""
