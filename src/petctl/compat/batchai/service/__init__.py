"""What a user of Azure Batch AI calls resources, kept on this machine: groups, workspaces, clusters, experiments, jobs,
file servers, storage accounts.

    names.py           the kinds of resources, which names are allowed; ids as Azure writes them
    resource_store.py  one directory per resource, below $PETCTL_HOME/batchai; made, changed and removed whole
    resources.py       groups, workspaces, experiments: create, read, list, delete
    storage.py         storage accounts: shares and containers are directories; file servers: a directory each
    contents.py        ... the files in shares and containers, also in containers of Azure
    machines.py        what a cluster is made of: its settings file and options -> what was asked for
    clusters.py        clusters: each is a local cluster of petctl's under the same name, where that is free
    jobs.py            jobs: a name for one of petctl's own
    job_state.py       ... how it stands, and how it ended
    report.py          resources as `show` prints them: every key, unset ones null
    removal.py         deleting a resource with everything in it, jobs first
    volumes.py         where the volumes of job files are: by petctl.yaml, or this machine's accounts
    mounts.py          what options and settings files ask to be mounted
    files.py           what is in a job's directories, and following a file that grows

The command line is `petctl.compat.batchai.cli`; job files are read by `petctl.compat.batchai.jobfile`. Nothing here
runs anything: that is `petctl.jobs` and `petctl.clusters`, which know nothing of this package.
"""
