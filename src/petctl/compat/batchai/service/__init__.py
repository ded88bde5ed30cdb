"""What a user of Azure Batch AI calls resources, kept on this machine: groups, workspaces, clusters, experiments, jobs,
file servers, storage accounts.

    names       which names are allowed; ids as Azure writes them
    tree        one directory per resource, below $PETCTL_HOME/batchai; made, changed and removed whole
    resources   groups, workspaces, experiments: create, read, list, delete
    storage     storage accounts: shares and containers are directories
    servers     file servers: a directory each
    machines    what a cluster is made of: its settings file and options -> what was asked for
    clusters    clusters: each is a local cluster of petctl's under the same name, where that is free
    jobs        jobs: a name for one of petctl's own
    standing    ... how it stands, and how it ended
    reported    resources as `show` prints them: every key, unset ones null
    removal     deleting a resource with everything in it, jobs first
    mounts      what options and settings files ask to be mounted
    files       what is in a job's directories, and following a file that grows

The words of the command line are `petctl.compat`'s; reading a job file is `petctl.compat.batchai.jobfile`'s. Nothing
here runs anything: that is `petctl.jobs` and `petctl.clusters`, which know nothing of this package.
"""
