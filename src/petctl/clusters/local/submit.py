"""Making a job's directory and putting the job in line: whoever is killed when, it is there as a whole or not at all.

    draft, under a hidden name -> claim on slots -> its own name: from here on it is accepted -> whoever is due starts

What is in the directory is `job_directory.py`'s and `build_record.py`'s; who is due is the line's.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.addresses import is_address, is_loopback
from petctl.clusters.local.commands import supervisor_argv
from petctl.clusters.local.controller.start_environment import forget_environment, keep_environment
from petctl.clusters.local.job_directory import JobDirectory, write_text
from petctl.clusters.local.queue.queue import queue_of
from petctl.clusters.local.queue.queue_claims import claim_of, slots_of
from petctl.clusters.local.record import LocalRequest, write_record
from petctl.errors import PetctlError
from petctl.files import make_private_directory, sync_directory
from petctl.job.record import JobRecord
from petctl.rendezvous.net.join_file import JoinFile, write_join_file

ABANDONED = 3600.0  # seconds after which the unfinished directory of a killed submitter is removed


def accept(directory: JobDirectory, record: JobRecord) -> None:
    """The job is accepted once it has its directory; AlreadyExists when there is one."""
    jobs, line = directory.path.parent, queue_of(directory.home, record.cluster)
    make_private_directory(jobs)
    _remove_abandoned(jobs)
    if directory.path.exists():
        with suppress(PetctlError):  # its first submitter may have been killed before it could start it
            line.look()
        raise AlreadyExists(f"job {directory.id} already exists")
    draft = jobs / f".new-{secrets.token_hex(6)}"
    slots = slots_of(directory.home, record.cluster)
    try:
        draft.mkdir(mode=0o700)
        _write(draft, directory, record)
        with slots.steps():
            # In line first: a job that is there is one that the line knows, whoever is killed when.
            slots.enter(claim_of(directory, record))
            _give_name(draft, directory)
            sync_directory(jobs)
            with suppress(PetctlError):  # it is in line, and whoever looks next starts it
                line.look(slots)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        if not directory.path.exists():
            forget_environment(directory)
        raise


def _write(draft: Path, final: JobDirectory, record: JobRecord) -> None:
    here = JobDirectory(draft)
    for folder in (here.logs, here.outputs, here.checkpoints):
        folder.mkdir()
    token, pin = secrets.token_hex(32), ""
    write_text(here.token, token + "\n", mode=0o600)
    request = LocalRequest.of(record)
    if not is_loopback(request.listen):
        from petctl.clusters.certificate import make_certificate

        address = request.address
        certificate, key, pin = make_certificate(*(([], [address]) if is_address(address) else ([address], [])))
        write_text(here.certificate, certificate.decode())
        write_text(here.key, key.decode(), mode=0o600)
    if request.container:
        from petctl.clusters.agent_archive import build_agent

        build_agent(here.agent)
    # From inside a container nobody can start one: whoever looks at the job does (job_status.py).
    argv = supervisor_argv(final) if not request.container else ["true"]
    revive = {"argv": argv, "lock": str(final.revive_lock), "log": str(final.supervisor_log)}
    join = JoinFile(final.id, token, pin, {"file": str(final.coordinator)}, revive)
    write_join_file(here.join, join.for_nodes())
    if record.code:
        # A link: the archive lives as long as one job needs it, and many jobs cost one.
        os.link(record.code["archive"], here.code)
    keep_environment(here, final)
    here.reserve()
    write_record(here, record)


def _give_name(draft: Path, directory: JobDirectory) -> None:
    try:
        draft.rename(directory.path)
    except OSError:
        if directory.path.exists():
            raise AlreadyExists(f"job {directory.id} already exists") from None
        raise


def _remove_abandoned(jobs: Path) -> None:
    for name in os.listdir(jobs):  # noqa: PTH208  names are enough, of what may be thousands
        if not name.startswith(".new-"):
            continue
        path = jobs / name
        try:
            if time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            pass
