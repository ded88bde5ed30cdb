"""Front ends: command lines of other systems over petctl's own jobs and clusters. Thin: words in, objects out.

    batchai.py     the entry of `batchai`: the verbs of `az batchai`, and `group` and `storage` of the same recipe
    az.py          the entry of the `az` stand-in: `az batchai ...`, and what else a recipe of Batch AI types
    verbs.py       the first pages of help, printed before click is imported
    frame.py       what every verb has: -o, --query, --verbose; how its answer is printed; groups whose verbs are files
    words.py       options and addresses that verbs share
    printing.py    an answer as json, jsonc, table or tsv; JMESPath
    usual.py       show, list, delete of every resource
    workspace.py, experiment.py, cluster.py, fileserver.py    az batchai ...
    job.py, jobfiles.py, nodes.py, usages.py
    groups.py, account.py                                     az group, account, login
    storage.py, shares.py, containers.py, drawers.py          az storage ...
    act/           `act` and `a`: the verbs of AML Command Transfer
    installing.py, actpackage.py  petctl compat install, uninstall, list; the package `act`

What resources are is `petctl.batchai`'s to know, what ACT's runs are is `petctl.act`'s. Nothing is imported until its
verb is typed.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name == "command":  # where petctl's own group looks for the verb `compat`
        from petctl.cli.compat.installing import command

        return command
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
