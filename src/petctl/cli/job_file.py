"""Job files of any kind, by what is in them: petctl's own, or another system's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from petctl.job.spec.job import Prepared


def read_any(path: str, sets: Mapping[str, str]) -> Prepared:
    """The job in a file of any kind; `sets` fills ${NAME}, or what another system's file has in its place."""
    from petctl.job.file.read import document_of, foreign_format, job_of

    document = document_of(path)
    foreign = foreign_format(document.root)
    return foreign.read_job_file(document, sets) if foreign else Prepared(job_of(document, sets))


@contextmanager
def kept_secrets(values: Mapping[str, str], cluster: str) -> Iterator[None]:
    """Keeps secrets where a cluster's jobs find them; forgets them again if the job is not submitted."""
    if not values:
        yield
        return
    from petctl.jobs.secrets import list_secrets, remove_secret, set_secret

    kept = []
    try:
        known = list_secrets(cluster)
        for name, value in values.items():
            if name not in known:  # a storage account's key that is there is the user's own
                set_secret(name, value, cluster)
                kept.append(name)
        yield
    except BaseException:
        for name in kept:
            remove_secret(name, cluster)
        raise
