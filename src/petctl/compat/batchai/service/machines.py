"""What a cluster or file server is to be like: the words of the command line over the settings file -> settings.

Settings have the shape in which Batch AI reports them. What has no meaning here (sizes of machines, accounts on them,
networks) is kept as it was said; `idle_words` names it. What was secret is in no record: `kept`.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.jobfile import volumes_as_reported, without_secrets
from petctl.compat.batchai.jobfile.fields import MOUNTS, PROPERTIES, RESOURCE, TEXT, VAULT_SECRET, line, path, word
from petctl.compat.batchai.service.report import DEALLOCATION, UBUNTU
from petctl.errors import UsageError
from petctl.job.spec import values
from petctl.job.spec.shape import Need, Shape, whole

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

IDLE = (
    *("vm_size", "vm_priority", "image", "custom_image", "user_name", "ssh_key", "password", "generate_ssh_keys"),
    *("subnet", "disk_count", "disk_size", "storage_sku", "caching_type", "ssh_private_key"),
)
"""Options that are kept and have no effect on this machine."""

_COUNT = values.whole(0)
_BOUND = Need(values.whole(0))
_USER: Shape = {"adminUserName": TEXT, "adminUserSshPublicKey": TEXT, "adminUserPassword": TEXT}
_SUBNET = {"id": values.single_line}
_SETUP: Shape = {
    "setupTask": {
        "commandLine": line,
        "environmentVariables": PROPERTIES["environmentVariables"],
        "secrets": PROPERTIES["secrets"],
        "stdOutErrPathPrefix": path,
        "stdOutErrPathSuffix": path,
    },
    "mountVolumes": MOUNTS,
    "performanceCountersSettings": {
        "appInsightsReference": {
            "component": RESOURCE,
            "instrumentationKey": TEXT,
            "instrumentationKeySecretReference": VAULT_SECRET,
        }
    },
}
CLUSTER: Shape = {
    "vmSize": values.single_line,
    "vmPriority": word(*PRIORITIES),
    "scaleSettings": {
        "manual": {"targetNodeCount": _COUNT, "nodeDeallocationOption": word(*DEALLOCATIONS)},
        "autoScale": {"minimumNodeCount": _BOUND, "maximumNodeCount": _BOUND, "initialNodeCount": _COUNT},
    },
    "virtualMachineConfiguration": {"imageReference": dict.fromkeys(UBUNTU, TEXT)},
    "nodeSetup": _SETUP,
    "userAccountSettings": _USER,
    "subnet": _SUBNET,
}
FILE_SERVER: Shape = {
    "vmSize": values.single_line,
    "sshConfiguration": {"publicIPsToAllow": values.words, "userAccountSettings": _USER},
    "dataDisks": {"diskSizeInGB": _COUNT, "diskCount": _COUNT, "cachingType": TEXT, "storageAccountType": TEXT},
    "subnet": _SUBNET,
}


def cluster_settings(given: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for: `words` of the command line (None: not said) over what the file gave."""
    image = _image(words, given)
    setup = _setup(words, given.get("nodeSetup") or {})
    return {
        "nodeSetup": setup,
        "scaleSettings": scale_settings(words, given.get("scaleSettings") or {}),
        "subnet": _subnet(words, given),
        "userAccountSettings": _account(words, given.get("userAccountSettings") or {}),
        "virtualMachineConfiguration": {"imageReference": image},
        "vmPriority": words.get("vm_priority") or given.get("vmPriority") or PRIORITIES[0],
        "vmSize": str(words.get("vm_size") or given.get("vmSize") or "STANDARD_LOCAL").upper(),
    }


def kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster's settings as they are written down and shown: every key, and nothing that was secret."""
    if settings["nodeSetup"] is None:
        return dict(settings)
    setup = whole(_SETUP, without_secrets(settings["nodeSetup"]))
    setup["mountVolumes"] = volumes_as_reported(setup["mountVolumes"])
    return {**settings, "nodeSetup": setup}


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
        least, most = automatic["minimumNodeCount"], automatic["maximumNodeCount"]
        if least > most:
            raise UsageError(f"the minimum number of nodes ({least}) is above the maximum ({most})")
        bounds = {"maximumNodeCount": most, "minimumNodeCount": least}
        return {"autoScale": {"initialNodeCount": automatic.get("initialNodeCount", 0), **bounds}, "manual": None}
    manual = given.get("manual") or {}
    option = manual.get("nodeDeallocationOption", DEALLOCATION)
    count = target if target is not None else manual.get("targetNodeCount", 0)
    return {"autoScale": None, "manual": {"nodeDeallocationOption": option, "targetNodeCount": count}}


def idle_words(words: Mapping[str, Any]) -> list[str]:
    """The options among these that are kept and have no effect on this machine."""
    return [f"--{name.replace('_', '-')}" for name in IDLE if words.get(name)]


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
    counters = given.get("performanceCountersSettings")
    return {"mountVolumes": mounts, "performanceCountersSettings": counters, "setupTask": task or None}


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
            raise UsageError(f"{text!r} is not an image: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version")
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
            raise UsageError(f"--ssh-key: {key!r} is not a public key, nor a file with one: {error.strerror}") from None
    name = words.get("user_name") or given.get("adminUserName") or getpass.getuser()
    return {"adminUserName": name, "adminUserPassword": None, "adminUserSshPublicKey": key}


def _subnet(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    text = words.get("subnet") or (given.get("subnet") or {}).get("id")
    return {"id": text} if text else None
