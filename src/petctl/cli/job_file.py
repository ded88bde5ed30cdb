"""Job files of any kind, by what is in them: petctl's own, or Batch AI's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from petctl.job.spec import Job


BATCHAI = "petctl.compat.batchai.service.volumes"  # by its name: petctl's own parts import no front end


class Prepared(NamedTuple):
    """A job as it will be submitted, and what has to be kept for it first."""

    job: Job
    secrets: Mapping[str, str] = MappingProxyType({})  # name -> value
    remarks: Sequence[str] = ()


def read_any(path: str, sets: Mapping[str, str]) -> Prepared:
    """The job in a file of either kind; `sets` fills ${NAME}, or a Batch AI file's <NAME>."""
    from petctl.job.file.read import document_of, is_batchai, job_of

    document = document_of(path)
    if not is_batchai(document.root):
        return Prepared(job_of(document, sets))
    reading = import_module(BATCHAI).read_job_file(document, sets)
    return Prepared(reading.job, reading.secrets, reading.remarks)


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
