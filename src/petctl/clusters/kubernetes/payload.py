"""What a job's pods are given beside their Jobs: certificate and token, the agent, the record, the code, store keys.

The cluster itself is not asked here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from petctl.clusters.agent_archive import agent_files
from petctl.clusters.certificate import make_certificate
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.errors import Refused
from petctl.job.fields import encode
from petctl.job.record import JobRecord
from petctl.rendezvous.net.join_file import JoinFile, encode_join


def new_credentials(record: JobRecord, home: Path) -> dict[str, bytes]:
    """A new token and certificate, and the join file that leads to them."""
    host = make.service_name(record.id, KubernetesRequest.of(record).namespace)
    certificate, key, pin = make_certificate([host], [])
    token = secrets.token_hex(32)
    join = JoinFile(record.id, token, pin, {"dns": f"{host}:{make.PORT}"})
    return {
        "token": token.encode(),
        "tls.crt": certificate,
        "tls.key": key,
        "join.json": json.dumps(encode_join(join.for_nodes())).encode(),
        **_store_keys(record.grants, home),
    }


def _store_keys(places: Mapping[str, Mapping[str, Any]], home: Path) -> dict[str, bytes]:
    """What the coordinator signs with: the keys of the submitter, as they are now."""
    if not places:
        return {}
    from petctl.submission.results import make_grants
    from petctl.submission.store_grants import keys_of

    made = make_grants(places, keys_of(home))
    if made.missing:
        raise Refused(next(iter(made.missing.values())))
    return {make.GRANTS: json.dumps({name: asdict(grant) for name, grant in made.items()}).encode()}


def material(record: JobRecord, credentials: Mapping[str, bytes | None]) -> Iterator[dict[str, Any]]:
    """The objects that hold it, but for an agent that jobs share. The record comes last: where it is, everything is."""
    job_id, request = record.id, KubernetesRequest.of(record)
    yield make.secret(job_id, credentials)
    if not request.agent:
        yield from make.agent_configs(job_id, agent_files(make.STATE))
    if request.pieces:
        yield from make.code_pieces(job_id, Path(record.code["archive"]).read_bytes(), request.pieces)
    kept = replace(record, request=encode(replace(request, objects=[])))
    yield make.config(job_id, json.dumps(kept.to_dict()))
