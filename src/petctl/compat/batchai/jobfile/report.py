"""A job file as Batch AI's service reports it: every key there is, unset ones null, what has a default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petctl.compat.batchai.jobfile.durations import as_wall_clock
from petctl.compat.batchai.jobfile.fields import MOUNTS, PROPERTIES, TOOLS, WEEK
from petctl.compat.batchai.jobfile.volumes import account_of
from petctl.compat.batchai.layout import said_by
from petctl.job.spec.job import Job
from petctl.job.spec.shape import whole

_BLOB_OPTIONS = (
    "--use-https=true -o big_writes -o max_read=131072 -o max_write=131072 -o attr_timeout=240 -o kernel_cache "
    "-o entry_timeout=240 -o negative_timeout=120 -o allow_other"
)


def as_reported(job: Job) -> dict[str, Any]:
    """The part of a reported job that its file decides; values of secrets are never in it."""
    said = said_by(job)
    properties = said.properties
    report = whole(PROPERTIES, properties)
    report["toolType"] = said.tool
    report["constraints"] = {
        "maxWallClockTime": as_wall_clock(properties.get("constraints", {}).get("maxWallClockTime", WEEK))
    }
    report["schedulingPriority"] = properties.get("schedulingPriority", "normal")
    for tool, shape in TOOLS.items():
        settings = report[tool]
        if settings is not None and "processCount" in shape and settings["processCount"] is None:
            settings["processCount"] = properties["nodeCount"]
    report["mountVolumes"] = volumes_as_reported(properties.get("mountVolumes"))
    return report


def volumes_as_reported(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The mounts of a job or a cluster; the keys of accounts are left out by whoever kept the file."""
    if given is None:
        return None
    volumes = whole(MOUNTS, given)
    for share in volumes["azureFileShares"] or ():
        share["accountName"] = account_of(share)
        share["fileMode"] = share["fileMode"] or "0777"
        share["directoryMode"] = share["directoryMode"] or "0777"
        share["credentials"] = _credentials(share)
    for container in volumes["azureBlobFileSystems"] or ():
        container["credentials"] = _credentials(container)
        container["mountOptions"] = container["mountOptions"] or _BLOB_OPTIONS
    for server in volumes["fileServers"] or ():
        server["mountOptions"] = server["mountOptions"] or "rw"
    return volumes


def _credentials(volume: Mapping[str, Any]) -> dict[str, Any]:
    return volume["credentials"] or {"accountKey": None, "accountKeySecretReference": None}
