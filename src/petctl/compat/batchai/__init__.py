"""Azure Batch AI over petctl.

jobfile/   reads its job files: JSON or YAML to a `Job`
layout.py  what a job has of its file beside a Job's fields, and where its directories are
service/   its resources, kept on this machine: groups, workspaces, clusters, experiments, jobs, storage
cli/       its command line: `batchai`; cli/az.py: the `az` stand-in
"""
