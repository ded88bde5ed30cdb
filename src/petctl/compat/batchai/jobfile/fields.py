"""Every field of a Batch AI job file, and what it may hold. What becomes of a field is said where it is used.

A problem that concerns one value alone is found here; what has to fit together is checked by `read`, `tools` and
`volumes`.
"""

from __future__ import annotations

from petctl.compat.batchai.jobfile.durations import wall_clock
from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, shown, wrong
from petctl.job.spec.shape import Convert, Need, Shape

PRIORITIES = {"low": -1000, "normal": 0, "high": 1000}
MOST_NODES = 100_000
WEEK = 7 * 86400.0  # how long a job may take that says nothing


def path(value: object) -> str:
    """A path on the nodes, which may use variables."""
    text = values.single_line(value)
    if not text:
        raise wrong("the path is empty")
    return text


def inner_path(value: object) -> str:
    """A path below another one."""
    text = path(value).strip("/")
    if not text or any(part in ("", ".", "..") for part in text.split("/")) or str(value).startswith("/"):
        raise wrong(f"expected a path without '..' below another one, such as data or data/train, got {shown(value)}")
    return text


directory_id = values.of_form(
    r"[A-Za-z0-9_]+", "expected letters, digits and '_', since it is part of a variable's name"
)
variable = values.of_form(
    r"[A-Za-z_][A-Za-z0-9_]*", "expected a variable's name (letters, digits and '_', no digit first)"
)
mode = values.of_form(r"[0-7]{3,4}", "expected permissions such as 0777")
shm_size = values.of_form(
    r"[0-9]+(?:\.[0-9]+)?\s*[bkmgtBKMGT]?[iI]?[bB]?", "expected a size such as 2g or 512m, as docker writes it"
)


def line(value: object) -> str:
    """A command line that does something."""
    text = values.text(value)
    if not text.strip():
        raise wrong("the command line is empty")
    return text


def scheduling_priority(value: object) -> str | int:
    """A word, or the number that older files have."""
    if isinstance(value, str) and value.lower() in PRIORITIES:
        return value.lower()
    try:
        number = values.whole(-1000)(value)
    except FieldError:
        number = 1001
    if number > 1000:
        raise wrong(f"expected low, normal or high, or a number from -1000 to 1000, got {shown(value)}")
    return number


def word(*choices: str) -> Convert:
    """One word of a few, whatever its letters' case, as the service writes it."""

    def convert(value: object) -> str:
        found = {choice.lower(): choice for choice in choices}.get(str(value).lower())
        if found is None:
            raise wrong(f"expected {' or '.join(choices)}, got {shown(value)}")
        return found

    return convert


COUNT = values.whole(1, MOST_NODES)
TEXT = values.text

RESOURCE: Shape = {"id": Need(values.single_line), "resourceGroup": values.single_line}
VAULT_SECRET: Shape = {"sourceVault": RESOURCE, "secretUrl": Need(values.single_line)}
ACCOUNT_CREDENTIALS: Shape = {"accountKey": TEXT, "accountKeySecretReference": VAULT_SECRET}

PYTHON: Shape = {"pythonScriptFilePath": Need(path), "pythonInterpreterPath": path, "commandLineArgs": TEXT}
MPI_PYTHON: Shape = {**PYTHON, "processCount": COUNT}
TOOLS: dict[str, Shape] = {
    "caffe2Settings": PYTHON,
    "caffeSettings": {"configFilePath": path, **MPI_PYTHON, "pythonScriptFilePath": path},
    "chainerSettings": MPI_PYTHON,
    "cntkSettings": {
        "languageType": word("BrainScript", "Python"),
        "configFilePath": path,
        **MPI_PYTHON,
        "pythonScriptFilePath": path,
    },
    "customMpiSettings": {"commandLine": Need(line), "processCount": COUNT},
    "customToolkitSettings": {"commandLine": Need(line)},
    "horovodSettings": MPI_PYTHON,
    "pyTorchSettings": {**MPI_PYTHON, "communicationBackend": word("TCP", "Gloo", "MPI")},
    "tensorFlowSettings": {
        "pythonScriptFilePath": Need(path),
        "pythonInterpreterPath": path,
        "masterCommandLineArgs": TEXT,
        "workerCommandLineArgs": TEXT,
        "parameterServerCommandLineArgs": TEXT,
        "workerCount": COUNT,
        "parameterServerCount": COUNT,
    },
}

MOUNTS: Shape = {
    "azureFileShares": [
        {
            "accountName": values.single_line,
            "azureFileUrl": Need(values.single_line),
            "credentials": ACCOUNT_CREDENTIALS,
            "relativeMountPath": Need(inner_path),
            "fileMode": mode,
            "directoryMode": mode,
        }
    ],
    "azureBlobFileSystems": [
        {
            "accountName": Need(values.single_line),
            "containerName": Need(values.single_line),
            "credentials": ACCOUNT_CREDENTIALS,
            "relativeMountPath": Need(inner_path),
            "mountOptions": TEXT,
        }
    ],
    "fileServers": [
        {
            "fileServer": Need(RESOURCE),
            "sourceDirectory": path,
            "relativeMountPath": Need(inner_path),
            "mountOptions": TEXT,
        }
    ],
    "unmanagedFileSystems": [{"mountCommand": Need(line), "relativeMountPath": Need(inner_path)}],
}

PROPERTIES: Shape = {
    **TOOLS,
    "cluster": RESOURCE,
    "constraints": {"maxWallClockTime": wall_clock},
    "containerSettings": {
        "imageSourceRegistry": Need(
            {
                "serverUrl": values.single_line,
                "image": Need(values.single_line),
                "credentials": {
                    "username": Need(values.text),
                    "password": TEXT,
                    "passwordSecretReference": VAULT_SECRET,
                },
            }
        ),
        "shmSize": shm_size,
    },
    "environmentVariables": [{"name": Need(variable), "value": Need(values.text)}],
    "inputDirectories": [{"id": Need(directory_id), "path": Need(path)}],
    "jobPreparation": {"commandLine": Need(line)},
    "mountVolumes": MOUNTS,
    "nodeCount": Need(values.whole(1, MOST_NODES)),
    "outputDirectories": [{"id": Need(directory_id), "pathPrefix": Need(path), "pathSuffix": inner_path}],
    "schedulingPriority": scheduling_priority,
    "secrets": [{"name": Need(variable), "value": TEXT, "valueSecretReference": VAULT_SECRET}],
    "stdOutErrPathPrefix": Need(path),
}

# What the service adds when it reports a job; a reported job can be submitted again as it is.
REPORTED = (
    *("id", "name", "type", "resourceGroup", "toolType", "creationTime", "jobOutputDirectoryPathSegment"),
    *("provisioningState", "provisioningStateTransitionTime", "executionState", "executionStateTransitionTime"),
    *("executionInfo", "experimentName", "petctl"),
)
