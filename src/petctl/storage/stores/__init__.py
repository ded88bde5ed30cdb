"""Object storage, the submitting side: one bucket, container or folder, with the same verbs for each.

    location.py         s3://bucket/path, az://account/container/path, gs://, file://, plain paths: text in, value out
    credentials.py      what opens them: environment, `stores:` of the configuration, `petctl secret`
    endpoint.py         the verbs: list, read, write, remove
    signed.py           one bucket or container, by requests of petctl's own: paging.py, signed_requests.py (repeated)
    bucket.py           the same through obstore, where petctl cannot sign
    folder.py           the same for local files; arriving_file.py: one that gets its name when it is whole
    entry_index.py      listings of any size in bounded memory
    store_errors.py     what stores refuse, obstore's errors too, as errors of petctl's

It knows no clusters, jobs or terminals: configuration and secrets are passed in (`credentials.Surroundings`).
Signatures and the stores' refusals are the agent's (`storage/core/signing.py`, `storage/core/store_errors.py`); copies
are `petctl.storage.transfer`'s.
"""
