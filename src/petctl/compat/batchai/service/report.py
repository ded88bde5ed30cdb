"""Resources as Azure's command line shows them: every key that its users' scripts ask for, unset ones null.

Records and statuses in, plain data out; nothing is read or decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from petctl.compat.batchai.service.names import Address, account_id, group_id, id_of

SUCCEEDED = "succeeded"
DEALLOCATION = "requeue"
UBUNTU = {
    "offer": "UbuntuServer",
    "publisher": "Canonical",
    "sku": "16.04-LTS",
    "version": "latest",
    "virtualMachineImageId": None,
}
MOUNT_POINT = "/mnt/data"
_TYPES = {"workspaces": "workspaces", "jobs": "workspaces/experiments/jobs"}


def moment(seconds: float | None) -> str | None:
    """A point in time: 2018-06-12T21:25:07.039000+00:00."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(round(seconds, 3), timezone.utc).isoformat()


def group(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """A resource group."""
    return {
        "id": group_id(name),
        "location": record["location"],
        "managedBy": None,
        "name": name,
        "petctl": _behind(record),
        "properties": {"provisioningState": _state(record).capitalize()},
        "tags": record.get("tags"),
        "type": "Microsoft.Resources/resourceGroups",
    }


def workspace(address: Address, record: Mapping[str, Any]) -> dict[str, Any]:
    """A workspace."""
    return {**_made("workspaces", address, record), "location": record["location"], "tags": None}


def experiment(address: Address, record: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment."""
    return _made("experiments", address._replace(name=address.experiment), record)


def file_server(address: Address, record: Mapping[str, Any]) -> dict[str, Any]:
    """A file server."""
    settings = record["settings"]
    return {
        **_made("fileservers", address, record),
        "dataDisks": settings["dataDisks"],
        "mountSettings": {
            "fileServerInternalIp": "127.0.0.1",
            "fileServerPublicIp": "127.0.0.1",
            "mountPoint": MOUNT_POINT,
        },
        "petctl": _behind(record, directory=record["directory"]),
        "sshConfiguration": settings["sshConfiguration"],
        "subnet": settings["subnet"],
        "vmSize": settings["vmSize"],
    }


def cluster(address: Address, record: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster. `seen`: state, since, target, counts by state, errors: what is true of its nodes now."""
    settings = record["settings"]
    counts = seen["counts"]
    return {
        **_made("clusters", address, record),
        "allocationState": "deleting" if record.get("deleting") else seen["state"],
        "allocationStateTransitionTime": moment(seen["since"]),
        "currentNodeCount": sum(counts.values()),
        "errors": [_error(code, text) for code, text in seen["errors"]] or None,
        "nodeSetup": settings["nodeSetup"],
        "nodeStateCounts": {
            f"{state}NodeCount": counts.get(state, 0)
            for state in ("idle", "leaving", "preparing", "running", "unusable")
        },
        "petctl": _behind(record, cluster=record["petctl"]),
        "scaleSettings": seen["scale"],
        "subnet": settings["subnet"],
        "userAccountSettings": {**settings["userAccountSettings"], "adminUserPassword": None},
        "virtualMachineConfiguration": settings["virtualMachineConfiguration"],
        "vmPriority": settings["vmPriority"],
        "vmSize": settings["vmSize"],
    }


def account(name: str, record: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """A storage account."""
    return {
        "creationTime": moment(record["created"]),
        "id": account_id(record["group"], name),
        "kind": record["kind"],
        "location": record["location"],
        "name": name,
        "petctl": {"directory": directory},
        "primaryEndpoints": {
            "blob": f"https://{name}.blob.core.windows.net/",
            "file": f"https://{name}.file.core.windows.net/",
            "queue": None,
            "table": None,
        },
        "primaryLocation": record["location"],
        "provisioningState": "Succeeded",
        "resourceGroup": record["group"],
        "sku": {"name": record["sku"], "tier": record["sku"].partition("_")[0]},
        "statusOfPrimary": "available",
        "tags": {},
        "type": "Microsoft.Storage/storageAccounts",
    }


def job(address: Address, record: Mapping[str, Any], properties: Mapping[str, Any], seen: Mapping[str, Any]) -> Any:
    """A job. `properties`: what its file says, complete; `seen`: what is true of it now (`job_state.look`)."""
    return {
        **properties,
        **_made("jobs", address, record),
        "cluster": {"id": record["cluster"]["id"], "resourceGroup": record["cluster"]["group"]},
        "executionInfo": {
            "endTime": moment(seen["ended"]),
            "errors": [_error(code, text, details) for code, text, details in seen["errors"]] or None,
            "exitCode": seen["exit_code"],
            "startTime": moment(seen["started"]),
        },
        "executionState": seen["state"],
        "executionStateTransitionTime": moment(seen["since"]),
        "jobOutputDirectoryPathSegment": record["segment"],
        "petctl": _behind(
            record,
            cluster=record["cluster"]["petctl"],
            job=record["petctl"] or None,
            results=record.get("results"),
            sentence=seen["sentence"],
        ),
    }


def _made(kind: str, address: Address, record: Mapping[str, Any]) -> dict[str, Any]:
    """What every resource of a workspace has."""
    return {
        "creationTime": moment(record["created"]),
        "id": id_of(kind, address),
        "name": address.name or address.workspace,
        "petctl": _behind(record),
        "provisioningState": _state(record),
        "provisioningStateTransitionTime": moment(record["created"]),
        "resourceGroup": address.group,
        "type": f"Microsoft.BatchAI/{_TYPES.get(kind, f'workspaces/{kind}')}",
    }


def _behind(record: Mapping[str, Any], **facts: object) -> dict[str, Any]:
    """petctl's own words about a resource: what stands behind it, and why it could not be deleted."""
    return {**facts, "problem": record.get("problem")}


def _state(record: Mapping[str, Any]) -> str:
    if record.get("problem"):
        return "failed"
    return "deleting" if record.get("deleting") else SUCCEEDED


def _error(code: str, text: str, details: Mapping[str, str] | None = None) -> dict[str, Any]:
    rows = [{"name": name, "value": value} for name, value in (details or {}).items()]
    return {"code": code, "details": rows or None, "message": text}
