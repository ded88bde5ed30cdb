"""What a cluster or file server is to be like: the words of the command line over the settings file -> settings.

Settings have the shape in which Batch AI reports them, with every key. What has no meaning here (sizes of machines,
accounts on them, networks) is kept as it was said; `idle_words` names it.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.batchai.reported import DEALLOCATION, UBUNTU
from petctl.errors import UsageError
from petctl.spec.problems import FieldError, Problem, shown, unknown_field

IMAGES = {
    "ubuntults": UBUNTU,
    "ubuntudsvm": {
        "offer": "linux-data-science-vm-ubuntu",
        "publisher": "microsoft-ads",
        "sku": "linuxdsvmubuntu",
        "version": "latest",
        "virtualMachineImageId": None,
    },
}
PRIORITIES = ("dedicated", "lowpriority")
DEALLOCATIONS = (DEALLOCATION, "terminate", "waitforjobcompletion")

_MOUNTS = {
    "azureFileShares": None,
    "azureBlobFileSystems": None,
    "fileServers": None,
    "unmanagedFileSystems": None,
}
# Every field of cluster.json; a mapping goes on below, None takes any value.
CLUSTER: dict[str, Any] = {
    "vmSize": None,
    "vmPriority": None,
    "scaleSettings": {
        "manual": {"targetNodeCount": None, "nodeDeallocationOption": None},
        "autoScale": {"minimumNodeCount": None, "maximumNodeCount": None, "initialNodeCount": None},
    },
    "virtualMachineConfiguration": {
        "imageReference": {
            "publisher": None,
            "offer": None,
            "sku": None,
            "version": None,
            "virtualMachineImageId": None,
        }
    },
    "nodeSetup": {
        "setupTask": {
            "commandLine": None,
            "environmentVariables": None,
            "secrets": None,
            "stdOutErrPathPrefix": None,
            "stdOutErrPathSuffix": None,
        },
        "mountVolumes": _MOUNTS,
        "performanceCountersSettings": {"appInsightsReference": None},
    },
    "userAccountSettings": {"adminUserName": None, "adminUserSshPublicKey": None, "adminUserPassword": None},
    "subnet": {"id": None},
}
FILE_SERVER: dict[str, Any] = {
    "vmSize": None,
    "sshConfiguration": {"publicIPsToAllow": None, "userAccountSettings": CLUSTER["userAccountSettings"]},
    "dataDisks": {"diskSizeInGB": None, "diskCount": None, "cachingType": None, "storageAccountType": None},
    "subnet": {"id": None},
}


def read_settings(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The properties in a settings file; every field that is not one is named."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    properties = document.get("properties", document) if isinstance(document, dict) else document
    properties = {k: v for k, v in properties.items() if k != "$schema"} if isinstance(properties, dict) else properties
    problems = _check(properties, fields, ())
    if problems:
        raise FieldError(problems)
    return dict(properties)


def cluster_settings(given: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, complete: `words` of the command line (None: not said) over what the file gave."""
    image = _image(words, given)
    setup = _setup(words, given.get("nodeSetup") or {})
    return {
        "nodeSetup": setup,
        "scaleSettings": scale_settings(words, given.get("scaleSettings") or {}),
        "subnet": _subnet(words, given),
        "userAccountSettings": _account(words, given.get("userAccountSettings") or {}),
        "virtualMachineConfiguration": {"imageReference": image},
        "vmPriority": _one_of(words.get("vm_priority") or given.get("vmPriority") or PRIORITIES[0], PRIORITIES),
        "vmSize": str(words.get("vm_size") or given.get("vmSize") or "STANDARD_LOCAL").upper(),
    }


def server_settings(given: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """A file server's settings, complete."""
    disks = given.get("dataDisks") or {}
    ssh = given.get("sshConfiguration") or {}
    return {
        "dataDisks": {
            "cachingType": words.get("caching_type") or disks.get("cachingType") or "none",
            "diskCount": words.get("disk_count") or disks.get("diskCount"),
            "diskSizeInGb": words.get("disk_size") or disks.get("diskSizeInGB"),
            "storageAccountType": words.get("storage_sku") or disks.get("storageAccountType") or "Premium_LRS",
        },
        "sshConfiguration": {
            "publicIpsToAllow": ssh.get("publicIPsToAllow"),
            "userAccountSettings": {
                **_account(words, ssh.get("userAccountSettings") or {}),
                "adminUserPassword": None,
            },
        },
        "subnet": _subnet(words, given),
        "vmSize": str(words.get("vm_size") or given.get("vmSize") or "STANDARD_LOCAL").upper(),
    }


def scale_settings(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """How many nodes: a number (`manual`), or bounds (`autoScale`)."""
    target, least, most = words.get("target"), words.get("min"), words.get("max")
    if (least is None) != (most is None):
        raise UsageError("--min and --max go together: both, for a cluster that grows and shrinks by itself")
    if given.get("manual") and given.get("autoScale"):
        raise UsageError("scaleSettings has both manual and autoScale; keep one")
    automatic = given.get("autoScale") if target is None else None
    if least is not None and most is not None:
        automatic = {"minimumNodeCount": least, "maximumNodeCount": most, "initialNodeCount": target or 0}
    if automatic:
        bounds = _amount(automatic, "minimumNodeCount"), _amount(automatic, "maximumNodeCount")
        if bounds[0] > bounds[1]:
            raise UsageError(f"the least number of nodes ({bounds[0]}) is above the most ({bounds[1]})")
        initial = _amount(automatic, "initialNodeCount", 0)
        found = {"initialNodeCount": initial, "maximumNodeCount": bounds[1], "minimumNodeCount": bounds[0]}
        return {"autoScale": found, "manual": None}
    manual = given.get("manual") or {}
    option = _one_of(manual.get("nodeDeallocationOption") or DEALLOCATION, DEALLOCATIONS)
    count = target if target is not None else _amount(manual, "targetNodeCount", 0)
    return {"autoScale": None, "manual": {"nodeDeallocationOption": option, "targetNodeCount": count}}


def idle_words(words: Mapping[str, Any]) -> list[str]:
    """The options among these that are kept and have no effect on this machine."""
    names = {
        "vm_size": "--vm-size",
        "vm_priority": "--vm-priority",
        "image": "--image",
        "custom_image": "--custom-image",
        "user_name": "--user-name",
        "ssh_key": "--ssh-key",
        "password": "--password",
        "generate_ssh_keys": "--generate-ssh-keys",
        "subnet": "--subnet",
        "disk_count": "--disk-count",
        "disk_size": "--disk-size",
        "storage_sku": "--storage-sku",
        "caching_type": "--caching-type",
        "ssh_private_key": "--ssh-private-key",
    }
    return [option for name, option in names.items() if words.get(name)]


def _setup(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    task = dict(given.get("setupTask") or {})
    if words.get("setup_task"):
        task["commandLine"] = words["setup_task"]
    if words.get("setup_task_output"):
        task["stdOutErrPathPrefix"] = words["setup_task_output"]
    if task and not task.get("commandLine"):
        raise UsageError("a setup task needs its command line: --setup-task")
    if task and not task.get("stdOutErrPathPrefix"):
        raise UsageError("a setup task needs a place for its output: --setup-task-output")
    mounts = given.get("mountVolumes")
    if not task and not mounts:
        return None
    complete = {
        "commandLine": task.get("commandLine"),
        "environmentVariables": task.get("environmentVariables"),
        "secrets": task.get("secrets"),
        "stdOutErrPathPrefix": task.get("stdOutErrPathPrefix"),
        "stdOutErrPathSuffix": task.get("stdOutErrPathSuffix"),
    }
    return {
        "mountVolumes": {**_MOUNTS, **mounts} if mounts else None,
        "performanceCountersSettings": given.get("performanceCountersSettings"),
        "setupTask": complete if task else None,
    }


def _image(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    text = words.get("image")
    custom = words.get("custom_image")
    if custom and not text:
        raise UsageError("--custom-image needs --image as well, which says what the image is made from")
    image = (given.get("virtualMachineConfiguration") or {}).get("imageReference") or UBUNTU
    if text:
        parts = text.split(":")
        if text.lower() in IMAGES:
            image = IMAGES[text.lower()]
        elif len(parts) == 4 and all(parts[:3]):
            names = ("publisher", "offer", "sku", "version")
            image = dict(zip(names, (*parts[:3], parts[3] or "latest"), strict=True))
        else:
            raise UsageError(f"{text!r} is no image: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version")
    return {**dict.fromkeys(UBUNTU), **image, **({"virtualMachineImageId": custom} if custom else {})}


def _account(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    key = words.get("ssh_key") or given.get("adminUserSshPublicKey")
    if not key:
        usual = Path.home() / ".ssh" / "id_rsa.pub"
        key = str(usual) if usual.exists() else None
    if key and not key.startswith("ssh-"):
        try:
            key = Path(key).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"--ssh-key: {key!r} is no public key, nor a file of one: {error.strerror}") from None
    name = words.get("user_name") or given.get("adminUserName") or getpass.getuser()
    return {"adminUserName": name, "adminUserPassword": None, "adminUserSshPublicKey": key}


def _subnet(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    text = words.get("subnet") or (given.get("subnet") or {}).get("id")
    return {"id": text} if text else None


def _amount(mapping: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    value = mapping.get(name, otherwise)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name} must be a whole number, 0 or above, not {shown(value)}")
    return value


def _one_of(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise UsageError(f"{text!r} is none of {', '.join(choices)}")
    return text.lower()


def _check(value: object, fields: Mapping[str, Any] | None, path: tuple[str, ...]) -> list[Problem]:
    if fields is None or value is None:
        return []
    if not isinstance(value, dict):
        return [Problem(path, f"must be a mapping, not {shown(value)}")]
    problems = []
    for name, inner in value.items():
        if name not in fields:
            problems.append(unknown_field(name, fields).under(*path))
        else:
            problems += _check(inner, fields[name], (*path, name))
    return problems
