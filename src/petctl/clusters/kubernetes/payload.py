"""What a job's pods are given beside their Jobs: certificate and token, the agent, the record, the code, store keys.

The cluster itself is not asked here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from petctl.clusters import job_files
from petctl.clusters.agent_archive import agent_files
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.job.fields import encode
from petctl.job.record import JobRecord


def new_credentials(record: JobRecord, home: Path) -> dict[str, bytes]:
    """A new token and certificate, and the join file that leads to the job's Service."""
    host = make.service_name(record.id, KubernetesRequest.of(record).namespace)
    return job_files.new_credentials(record, home, {"dns": f"{host}:{make.PORT}"})


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
