"""Command lines of other systems over petctl's own jobs and clusters, each in a package of its own.

    act/        `act` and `a`: AML Command Transfer
    batchai/    `batchai` and the `az` stand-in: Azure Batch AI
    install.py  petctl compat: puts them on the PATH, takes them away
    missing_engine.py   where no container of an image can be run

The jobs that they start are petctl's own: every verb of petctl works on them.
"""
