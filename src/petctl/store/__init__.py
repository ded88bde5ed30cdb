"""Object storage, the submitting side: where data is (locations) and how it gets from one place to another.

    location      s3://bucket/path, az://account/container/path, gs://, file://, plain paths: text in, value out
    credentials   what opens them: environment, `stores:` of the configuration, `petctl secret`
    bucket        one bucket or container, through obstore; folder: the same verbs for local files
    parts         the parts of large objects, through the stores' own calls (obstore hides them)
    plan          what a copy has to do: which files, and which are there already, with the reason
    transfer      does it, in parallel, verified, resumable after kill -9

It knows no clusters, jobs or terminals: configuration and secrets are handed in (`credentials.Surroundings`), progress
is reported to a `Tally`. `signing.py` stands alone (standard library, Python 3.9), so that workers can use it too.
"""
