"""Object storage, the submitting side: where data is (locations) and how it gets from one place to another.

    location      s3://bucket/path, az://account/container/path, gs://, file://, plain paths: text in, value out
    credentials   what opens them: environment, `stores:` of the configuration, `petctl secret`
    signed        one bucket or container, by requests of petctl's own (parts, paging, rest, wire, sums)
    bucket        the same through obstore, where petctl cannot sign; folder: the same verbs for local files (arrival)
    plan          what a copy has to do: which files, and which are there already, with the reason
    transfer      does it, in parallel, verified, resumable after kill -9

It knows no clusters, jobs or terminals: configuration and secrets are handed in (`credentials.Surroundings`), progress
is reported to a `Tally`. Signatures and the stores' refusals are the agent's (`storage/core/signing.py`,
`storage/core/store_errors.py`).
"""
