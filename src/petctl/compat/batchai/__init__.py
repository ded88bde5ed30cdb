"""Azure Batch AI over petctl.

jobfile/   reads its job files: JSON or YAML to a `Job`
service/   its resources, kept on this machine: groups, workspaces, clusters, experiments, jobs, storage
cli/       its command line: `batchai`; cli/az.py: the `az` stand-in
"""
