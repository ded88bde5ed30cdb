"""The command line `batchai`: the verbs and flags of `az batchai`. Thin: words in, objects out.

    batchai.py       the entry; verbs.py: which verbs there are, and help before click is imported
    base_command.py  what every verb has: -o, --query, --verbose; how its answer is printed; lazy groups
    options.py       options and addresses that verbs share
    printing.py      an answer as json, jsonc, table or tsv; JMESPath
    crud.py          show, list, delete of every resource
    az/              what else a recipe of Batch AI types: az group, az storage, az account

Nothing is imported until its verb is typed.
"""
