"""What a job's coordinator and its nodes are given beside their command, on any platform.

`new_credentials` makes it. Kubernetes keeps it in objects; where there are directories `write_job_files` puts down what
`petctl-agent.pyz coordinate --job` reads (`controller/job_files.py`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from petctl.clusters.certificate import make_certificate
from petctl.controller.job_files import GRANTS, JOIN
from petctl.errors import Refused
from petctl.job.record import JobRecord
from petctl.rendezvous.net.join_file import JoinFile, encode_join


def new_credentials(record: JobRecord, home: Path, locator: Mapping[str, str]) -> dict[str, bytes]:
    """A new token and certificate, and the join file that leads to them; keys for the stores of a job that has any.

    `locator`: {"address" or "dns": "HOST:PORT"}, {"file": PATH} or {"url": URL}; nodes look it up when they connect.
    """
    known = locator.get("dns") or locator.get("address") or "localhost"  # it is for people: the pin is what is trusted
    certificate, key, pin = make_certificate([known.rpartition(":")[0] or known], [])
    token = secrets.token_hex(32)
    join = JoinFile(record.id, token, pin, locator)
    return {
        "token": token.encode(),
        "tls.crt": certificate,
        "tls.key": key,
        JOIN: json.dumps(encode_join(join.for_nodes())).encode(),
        **_store_keys(record.grants, home),
    }


def write_job_files(
    directory: Path, record: JobRecord, credentials: Mapping[str, bytes], values: Mapping[str, str]
) -> None:
    """Writes them, the job's code and its secrets (`values`: by their names) into a new directory for the user's eyes
    only. The record comes last: where it is, everything is."""
    directory.mkdir(mode=0o700)
    files = dict(credentials)
    files.update({f"secrets/{name}": values[name].encode() for name in record.secrets.values()})
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    if record.code:
        (directory / "code").mkdir()
        os.link(record.code["archive"], directory / "code" / "part-00000")
    (directory / "job.json").write_text(json.dumps(record.to_dict()))


def _store_keys(places: Mapping[str, Mapping[str, Any]], home: Path) -> dict[str, bytes]:
    """What the coordinator signs with: the keys of the submitter, as they are now."""
    if not places:
        return {}
    from petctl.submission.results import make_grants
    from petctl.submission.store_grants import keys_of

    made = make_grants(places, keys_of(home))
    if made.missing:
        raise Refused(next(iter(made.missing.values())))
    return {GRANTS: json.dumps({name: asdict(grant) for name, grant in made.items()}).encode()}
