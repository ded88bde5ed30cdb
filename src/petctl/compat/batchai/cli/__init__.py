"""The command line `batchai`: the verbs and flags of `az batchai`. Thin: words in, objects out.

    batchai.py       the entry; verbs.py: which verbs there are, and help before click is imported
    base_command.py  what every verb has: -o, --query, --verbose; how its answer is printed; lazy groups
    options.py       options and addresses that verbs share
    printing.py      an answer as json, jsonc, table or tsv; JMESPath
    resources.py     the table of kinds: workspaces, clusters, file servers, experiments; their verbs
    job.py           jobs; job_files.py, nodes.py: files and nodes of jobs and clusters
    groups.py        az group, account, login; list-usages; storage.py: az storage
    az.py            the entry of the `az` stand-in

Nothing is imported until its verb is typed.
"""
