"""Batch AI job files: every field becomes what it says, or is named with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petctl.compat.batchai.jobfile import Found, JobFile, Names, Volume, as_reported, read_file, read_mapping
from petctl.compat.batchai.jobfile.fields import PROPERTIES, TOOLS
from petctl.compat.batchai.layout import said_by
from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict
from petctl.job.spec.shape import Need, Shape
from petctl.submission.task import layout_of

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
MINIMAL: dict[str, Any] = {
    "nodeCount": 2,
    "stdOutErrPathPrefix": f"{ROOT}/logs",
    "customMpiSettings": {"commandLine": "echo $RANK"},
    "mountVolumes": {
        "azureFileShares": [
            {"azureFileUrl": "https://acc.file.core.windows.net/logs", "relativeMountPath": "logs"},
        ]
    },
}
# What the example of the service's documentation prints for a job, sorted as it is there, less what is the job's life.
KEYS = [
    *("caffe2Settings", "caffeSettings", "chainerSettings", "cluster", "cntkSettings", "constraints"),
    *("containerSettings", "customMpiSettings", "customToolkitSettings", "environmentVariables", "horovodSettings"),
    *("inputDirectories", "jobPreparation", "mountVolumes", "nodeCount", "outputDirectories", "pyTorchSettings"),
    *("schedulingPriority", "secrets", "stdOutErrPathPrefix", "tensorFlowSettings", "toolType"),
]


def shares(volume: Volume) -> Found | str:
    if volume.name == "missing":
        return "there is none"
    return Found(f"/shares/{volume.kind}/{volume.account}/{volume.name.rpartition('/')[2]}/{volume.below}".rstrip("/"))


def with_tool(name: str, settings: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**{key: value for key, value in MINIMAL.items() if key != "customMpiSettings"}, name: settings, **fields}


def read(properties: dict[str, Any], **surroundings: Any) -> Any:
    return read_mapping({"properties": properties}, JobFile(shares, **surroundings))


def problems(properties: Any, **surroundings: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(properties, **surroundings)
    return [line.removeprefix("job: ") for line in str(caught.value).splitlines()]


def test_the_wrapper_may_be_left_out_and_yaml_says_the_same(tmp_path: Path) -> None:
    wrapped, bare, yaml = tmp_path / "job.json", tmp_path / "bare.json", tmp_path / "job.yaml"
    wrapped.write_text(json.dumps({"$schema": "https://example.org/job.json", "properties": MINIMAL}))
    bare.write_text(json.dumps(MINIMAL))
    yaml.write_text(
        f"nodeCount: 2\nstdOutErrPathPrefix: {ROOT}/logs\ncustomMpiSettings: {{commandLine: echo $RANK}}\n"
        "mountVolumes:\n  azureFileShares:\n  - azureFileUrl: https://acc.file.core.windows.net/logs\n"
        "    relativeMountPath: logs\n"
    )
    first, *others = [read_file(path, JobFile(shares)).job for path in (wrapped, bare, yaml)]
    assert others == [first, first]
    assert (first.nodes.min, first.nodes.max, first.launcher, first.restarts) == (2, 2, "mpi", 0)
    assert first.max_time == 7 * 86400
    assert first.code == "none"


def test_a_job_survives_its_record() -> None:
    job = read(MINIMAL).job
    assert job_from_dict(json.loads(json.dumps(job_to_dict(job)))) == job


def test_petctls_own_reader_says_whose_file_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"properties": MINIMAL}))
    with pytest.raises(SpecError, match="this is a Batch AI job file"):
        read_job(tmp_path / "job.json")


PYTHON = 'exec "$PETCTL_PYTHON" -u "$HOME/train.py"'
SCRIPT = {"pythonScriptFilePath": "$HOME/train.py", "commandLineArgs": "-g --lr '0.1'"}


@pytest.mark.parametrize("tool", ["chainerSettings", "horovodSettings", "cntkSettings", "caffeSettings"])
def test_mpi_tools(tool: str) -> None:
    job = read(with_tool(tool, SCRIPT)).job
    assert (job.launcher, job.processes, job.procs) == ("mpi", 0, "1")
    assert job.command.words == [f"{PYTHON} -g --lr '0.1'"]
    assert said_by(job).files == "merged"
    assert read(with_tool(tool, {**SCRIPT, "processCount": 3})).job.processes == 3
    own = read(with_tool(tool, {**SCRIPT, "pythonInterpreterPath": "/opt/my env/bin/python"})).job
    assert own.command.words[0].startswith('exec "/opt/my env/bin/python" -u ')


def test_tools_with_a_configuration_file() -> None:
    caffe = read(with_tool("caffeSettings", {"configFilePath": "solver.prototxt"}, nodeCount=1)).job
    assert (caffe.launcher, caffe.command.words) == ("plain", ['exec caffe train --solver="solver.prototxt"'])
    cntk = read(with_tool("cntkSettings", {"languageType": "brainscript", "configFilePath": "a.cntk"})).job
    assert cntk.command.words == ['exec cntk configFile="a.cntk"']


@pytest.mark.parametrize(
    ("tool", "settings", "problem"),
    [
        ("caffeSettings", {}, "exactly one of configFilePath and pythonScriptFilePath is needed"),
        ("caffeSettings", {**SCRIPT, "configFilePath": "x"}, "exactly one of"),
        ("cntkSettings", {"languageType": "Python"}, ".pythonScriptFilePath: is missing"),
        ("cntkSettings", {}, ".configFilePath: is missing"),
        ("cntkSettings", {"languageType": "Pascal"}, ".languageType: expected BrainScript or Python"),
        ("pyTorchSettings", {**SCRIPT, "processCount": 3}, ".processCount: 3 processes cannot be divided"),
        ("tensorFlowSettings", {**SCRIPT}, ".commandLineArgs: unknown field"),
        ("customToolkitSettings", {"commandLine": " "}, ".commandLine: the command line is empty"),
        ("chainerSettings", {"pythonScriptFilePath": "a", "processCount": 0}, ".processCount: expected a whole number"),
    ],
)
def test_a_tool_whose_fields_do_not_fit(tool: str, settings: dict[str, Any], problem: str) -> None:
    assert any(f"properties.{tool}" in line and problem in line for line in problems(with_tool(tool, settings)))


def test_pytorch() -> None:
    job = read(with_tool("pyTorchSettings", {**SCRIPT, "processCount": 4, "communicationBackend": "gloo"})).job
    assert (job.launcher, job.procs, said_by(job).backend, said_by(job).files) == ("elastic", "2", "gloo", "rank")
    mpi = read(with_tool("pyTorchSettings", {**SCRIPT, "communicationBackend": "MPI"})).job
    assert (mpi.launcher, said_by(mpi).backend) == ("mpi", "mpi")
    assert mpi.command.words[0].startswith('export AZ_BATCHAI_TASK_INDEX="$RANK"; exec ')
    old = read(with_tool("pyTorchSettings", {**SCRIPT, "communicationBackend": "TCP"}))
    assert "Gloo" in old.remarks[0]


def test_tensorflow_has_roles_and_worker_0_is_the_master() -> None:
    settings = {
        "pythonScriptFilePath": "t.py",
        "masterCommandLineArgs": "--master",
        "workerCommandLineArgs": "--worker",
        "parameterServerCommandLineArgs": "--ps",
    }
    job = read(with_tool("tensorFlowSettings", settings)).job
    assert job.launcher == "plain"
    assert [(role.name, role.count, role.serves) for role in job.roles] == [("worker", 2, False), ("ps", 1, True)]
    line = job.roles[0].words[0]
    assert line.startswith('if [ "$AZ_BATCHAI_TASK_INDEX" = 0 ]; then exec')
    assert "--master; else exec" in line
    assert line.endswith("--worker; fi")
    alone = {"pythonScriptFilePath": "t.py", "masterCommandLineArgs": "--all"}
    single = read(with_tool("tensorFlowSettings", alone, nodeCount=1)).job
    assert [(role.name, role.count) for role in single.roles] == [("worker", 1)]
    few = problems(with_tool("tensorFlowSettings", {**settings, "workerCount": 1}))
    assert "nothing to do" in few[0]
    assert "more than" in problems(with_tool("tensorFlowSettings", {**settings, "parameterServerCount": 3}))[0]


def test_a_custom_toolkit_runs_on_the_first_node_only() -> None:
    job = read(with_tool("customToolkitSettings", {"commandLine": "a && b"})).job
    assert (job.launcher, job.command.words) == ("plain", ['[ "$GROUP_RANK" = 0 ] || exit 0; a && b'])
    caffe2 = read(with_tool("caffe2Settings", {"pythonScriptFilePath": "t.py"})).job
    assert (caffe2.launcher, said_by(caffe2).files) == ("plain", "rank")


def test_every_problem_is_told_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps(
            {
                "$schema": "x",
                "properties": {
                    "nodecount": 2,
                    "chainerSettings": {},
                    "horovodSettings": SCRIPT,
                    "outputDirectories": [{"id": "A-B", "pathPrefix": "/x"}],
                    "mountVolumes": {
                        "azureFileShares": [
                            {"azureFileUrl": "https://acc.file.core.windows.net/missing", "relativeMountPath": "logs"},
                            {
                                "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.x/a",
                                "relativeMountPath": "a",
                            },
                            {"azureFileUrl": "ftp://acc", "relativeMountPath": "logs/b"},
                        ],
                        "unmanagedFileSystems": [{"mountCommand": "mount x", "relativeMountPath": "b"}],
                    },
                    "secrets": [{"name": "A"}, {"name": "B", "value": "s3cr3t", "valueSecretReference": {}}],
                    "constraints": {"maxWallClockTime": "soon"},
                },
            },
            indent=1,
        )
    )
    with pytest.raises(SpecError) as caught:
        read_file(file, JobFile(shares))
    text = str(caught.value)
    assert all(line.startswith(f"{file}:") for line in text.splitlines())
    for wanted in (
        "properties.nodecount: unknown field; did you mean 'nodeCount'?",
        "properties.nodeCount: is missing",
        "properties.stdOutErrPathPrefix: is missing",
        "properties.chainerSettings.pythonScriptFilePath: is missing",
        "properties.horovodSettings: a second tool besides chainerSettings",
        "properties.outputDirectories[0].id: expected letters, digits and '_'",
        "properties.mountVolumes.azureFileShares[0].azureFileUrl: cannot be mounted: there is none",
        "properties.mountVolumes.azureFileShares[1].azureFileUrl: <AZURE_BATCHAI_STORAGE_ACCOUNT> is unknown",
        "properties.mountVolumes.azureFileShares[2].azureFileUrl: expected https://",
        "properties.secrets[1].valueSecretReference.secretUrl: is missing",
        "properties.constraints.maxWallClockTime: expected a time",
    ):
        assert wanted in text, wanted
    assert "s3cr3t" not in text


def test_placeholders_are_filled_everywhere() -> None:
    shared = {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs"}
    key = {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}
    volumes = {"azureFileShares": [{**shared, "credentials": key, "relativeMountPath": "logs"}]}
    job = read({**MINIMAL, "mountVolumes": volumes}, account="other", key="k3y").job
    assert said_by(job).mounts == [
        {
            "path": "logs",
            "directory": "/shares/file/other/logs",
            "here": True,
            "said": "https://other.file.core.windows.net/logs",
        }
    ]
    assert "k3y" not in json.dumps(job_to_dict(job))


def test_all_kinds_of_mounts() -> None:
    server = "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/fileservers/nfs"
    volumes = {
        **MINIMAL["mountVolumes"],
        "azureBlobFileSystems": [{"accountName": "acc", "containerName": "data", "relativeMountPath": "in/data"}],
        "fileServers": [{"fileServer": {"id": server}, "sourceDirectory": "/a/b", "relativeMountPath": "nfs"}],
        "unmanagedFileSystems": [{"mountCommand": "mount -t nfs host:/x", "relativeMountPath": "own"}],
    }
    mounts = said_by(read({**MINIMAL, "mountVolumes": volumes}).job).mounts
    assert [(mount["path"], mount.get("directory") or mount["command"]) for mount in mounts] == [
        ("logs", "/shares/file/acc/logs"),
        ("in/data", "/shares/blob/acc/data"),
        ("nfs", "/shares/nfs//nfs/a/b"),
        ("own", "mount -t nfs host:/x"),
    ]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"relativeMountPath": "../x"}, "relativeMountPath: expected a path without '..'"),
        ({"relativeMountPath": "/abs"}, "relativeMountPath: expected a path without '..'"),
        ({"relativeMountPath": "logs"}, "relativeMountPath: another mount is at logs"),
        ({"relativeMountPath": "logs/in"}, "relativeMountPath: lies in another mount's way, logs"),
        ({"accountName": "other"}, "accountName: the address is one of the account 'acc', not of 'other'"),
        ({"azureFileUrl": "https://A_B.file.core.windows.net/x"}, "is not a storage account"),
        ({"azureFileUrl": "https://[acc/logs"}, "azureFileUrl: expected https://"),
        ({"fileMode": "rw"}, "fileMode: expected permissions"),
        ({"credentials": {"acountKey": "x"}}, "credentials.acountKey: unknown field; did you mean 'accountKey'?"),
    ],
)
def test_a_mount_that_cannot_be(entry: dict[str, Any], problem: str) -> None:
    second = {"azureFileUrl": "https://acc.file.core.windows.net/more", "relativeMountPath": "more", **entry}
    volumes = {"azureFileShares": [*MINIMAL["mountVolumes"]["azureFileShares"], second]}
    found = problems({**MINIMAL, "mountVolumes": volumes})
    assert len(found) == 1
    assert found[0].startswith("properties.mountVolumes.azureFileShares[1].")
    assert problem in found[0]


def test_a_path_where_nothing_is_mounted() -> None:
    wrong = {"stdOutErrPathPrefix": "${AZ_BATCHAI_JOB_MOUNT_ROOT}/log", "inputDirectories": [{"id": "A", "path": ROOT}]}
    assert problems({**MINIMAL, **wrong}) == [
        f"properties.inputDirectories[0].path: nothing is mounted at {ROOT}/; there are: logs",
        f"properties.stdOutErrPathPrefix: nothing is mounted at {ROOT}/log; there are: logs",
    ]


def test_mounts_of_the_command_line_come_behind_the_files_own() -> None:
    more = {"azureFileShares": [{"azureFileUrl": "https://acc.file.core.windows.net/b", "relativeMountPath": "afs"}]}
    job = read({**MINIMAL, "stdOutErrPathPrefix": f"{ROOT}/afs"}, mounts=more).job
    assert [mount["path"] for mount in said_by(job).mounts] == ["logs", "afs"]
    assert len(said_by(job).properties["mountVolumes"]["azureFileShares"]) == 2


def test_secrets_rest_nowhere() -> None:
    vault = {"name": "B", "valueSecretReference": {"sourceVault": {"id": "v"}, "secretUrl": "https://v/b"}}
    properties = {**MINIMAL, "secrets": [{"name": "A", "value": "s3cr3t"}, vault]}
    properties["containerSettings"] = {
        "imageSourceRegistry": {"image": "i", "credentials": {"username": "u", "password": "passw0rd"}}
    }
    reading = read(properties, secret_of={"https://v/b": "kept"}.get)
    assert reading.job.secrets["B"] == "kept"
    opens = reading.job.image_credentials
    assert reading.secrets == {reading.job.secrets["A"]: "s3cr3t", opens: "u:passw0rd"}
    assert read(properties, secret_of={"https://v/b": "kept"}.get).secrets != reading.secrets, "one for each submission"
    for text in (json.dumps(job_to_dict(reading.job)), json.dumps(as_reported(reading.job))):
        assert "s3cr3t" not in text
        assert "passw0rd" not in text
    found = problems(properties)
    assert "petctl does not ask key vaults" in found[0]
    assert "https://v/b" in found[0]


def test_everything_else_of_a_file() -> None:
    properties = {
        **MINIMAL,
        "schedulingPriority": "high",
        "cluster": {"id": "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/nc6"},
        "constraints": {"maxWallClockTime": "PT2H"},
        "environmentVariables": [{"name": "N", "value": 3}],
        "jobPreparation": {"commandLine": "pip install x"},
        "containerSettings": {
            "imageSourceRegistry": {"serverUrl": "https://r.example.org", "image": "team/i:1"},
            "shmSize": "2g",
        },
    }
    job = read(properties).job
    assert (job.priority, job.cluster, job.max_time, job.env) == (1000, "nc6", 7200.0, {"N": "3"})
    assert (job.prepare, job.image, job.resources.shm) == (
        "pip install x",
        "r.example.org/team/i:1",
        2 << 30,
    )
    named = read(properties, names=Names("g", "w", "e", "j", "mine")).job
    assert (named.name, named.workspace, named.experiment, named.cluster) == ("j", "w", "e", "mine")
    assert read({**MINIMAL, "schedulingPriority": -500}).job.priority == -500
    assert "from -1000 to 1000" in problems({**MINIMAL, "schedulingPriority": "highest"})[0]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("7 days, 0:00:00", 604800),
        ("1 day, 2:03:04", 93784),
        ("12:30:00", 45000),
        ("1.02:00:00", 93600),
        ("P7D", 604800),
        ("PT1H30M", 5400),
        ("P1DT2H", 93600),
        (3600, 3600),
        ("3600", 3600),
        ("90m", 5400),
        ("2 days", 172800),
    ],
)
def test_times_in_all_spellings(written: object, seconds: float) -> None:
    assert read({**MINIMAL, "constraints": {"maxWallClockTime": written}}).job.max_time == seconds


@pytest.mark.parametrize("written", ["", "P", "PT", "0", "-1", "0:00:00", [], "7 days,", "999999 days"])
def test_times_that_are_none(written: object) -> None:
    assert "maxWallClockTime" in problems({**MINIMAL, "constraints": {"maxWallClockTime": written}})[0]


def test_names_that_are_there_twice() -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    outputs = [{"id": "M", "pathPrefix": "/x"}, {"id": "M", "pathPrefix": "/y"}]
    found = problems(
        {
            **MINIMAL,
            "environmentVariables": twice,
            "outputDirectories": outputs,
            "secrets": [{"name": "A", "value": "x"}],
        }
    )
    assert found == [
        "properties.outputDirectories[1].id: 'M' is already there",
        "properties.environmentVariables[1].name: 'A' is already there",
        "properties.secrets[0].name: A is also in environmentVariables",
    ]


def test_a_report_has_every_key_and_can_be_submitted_again() -> None:
    outputs = [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs"}]
    job = read({**MINIMAL, "outputDirectories": outputs}).job
    report = as_reported(job)
    assert sorted(report) == sorted(KEYS)
    assert (report["toolType"], report["schedulingPriority"], report["constraints"]) == (
        "custommpi",
        "normal",
        {"maxWallClockTime": "7 days, 0:00:00"},
    )
    assert report["customMpiSettings"] == {"commandLine": "echo $RANK", "processCount": 2}
    assert report["mountVolumes"]["azureFileShares"] == [
        {
            "accountName": "acc",
            "azureFileUrl": "https://acc.file.core.windows.net/logs",
            "credentials": {"accountKey": None, "accountKeySecretReference": None},
            "directoryMode": "0777",
            "fileMode": "0777",
            "relativeMountPath": "logs",
        }
    ]
    assert report["outputDirectories"] == [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": None}]
    shown = {**report, "id": "/subscriptions/0", "name": "j", "executionState": "running", "executionInfo": {}}
    shown["petctl"] = {"job": "j-2345"}  # which `batchai job show` adds
    again = read_mapping(json.loads(json.dumps(shown)), JobFile(shares)).job
    assert as_reported(again) == report


def inner_shape(key: Any) -> Any:
    """What an object, or each object of a list, is to be like; None for a value."""
    holds = key.holds if isinstance(key, Need) else key
    inner = holds[0] if isinstance(holds, list) else holds
    return inner if isinstance(inner, dict) else None


def fields_of(shape: Shape, path: str = "") -> Iterator[str]:
    for name, key in shape.items():
        yield f"{path}{name}"
        inner = inner_shape(key)
        if inner is not None:
            yield from fields_of(inner, f"{path}{name}.")


def test_the_page_says_of_every_field_what_becomes_of_it() -> None:
    page = (Path(__file__).parents[3] / "docs" / "batchai.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    words = {word for row in rows for word in re.findall(r"[A-Za-z0-9]+", row.split(" | ")[0])}
    last = {field.rpartition(".")[2] for field in fields_of(PROPERTIES)}
    assert last - words == {"mountVolumes", "resourceGroup", "id"} - words
    assert {"azureFileShares", "fileServers", *TOOLS} <= words


def texts_of(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*shape, "other"]), trees(shape), max_size=6)


def trees(shape: Shape) -> st.SearchStrategy[Any]:
    """Values that may well stand where something of this shape is expected, right or wrong."""
    simple: st.SearchStrategy[Any] = st.sampled_from(
        [
            None,
            "",
            "x",
            ROOT,
            f"{ROOT}/logs",
            0,
            1,
            2,
            True,
            "high",
            "P1D",
            [],
            {},
            "https://acc.file.x/y",
            "../x",
            "\0",
        ]
    )
    objects = [texts_of(inner) for inner in map(inner_shape, shape.values()) if inner is not None]
    return st.one_of(simple, *objects, *(st.lists(one, max_size=2) for one in objects))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts_of(PROPERTIES), st.booleans())
def test_any_content_is_a_job_or_told_in_words(properties: dict[str, Any], complete: bool) -> None:
    try:
        reading = read_mapping({**MINIMAL, **properties} if complete else properties, JobFile(shares))
    except SpecError as error:
        assert str(error)
    else:
        assert as_reported(reading.job)["nodeCount"] == reading.job.nodes.max


def test_what_travels_to_the_nodes() -> None:
    outputs = [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": "best"}]
    inputs = [{"id": "DATA", "path": f"{ROOT}/logs/data"}]
    properties = {**MINIMAL, "outputDirectories": outputs, "inputDirectories": inputs}
    job = read(properties, names=Names(group="g.r", workspace="w/../x", experiment="..", job="j")).job
    layout = layout_of(job, "j-3f9k")
    *path, number = layout.said["segment"].split("/")
    assert path == [
        *("00000000-0000-0000-0000-000000000000", "g.r"),
        *("workspaces", "w_.._x", "experiments", "_", "jobs", "j"),
    ]
    assert len(number) == 36
    assert layout_of(job, "j-3f9k").said["segment"] != layout.said["segment"]
    assert layout.outputs == {"MODEL": [f"{ROOT}/logs", "best"]}
    assert layout.said["inputs"] == {"DATA": f"{ROOT}/logs/data"}
    assert layout.work == "batchai/NODE/work"
    plain = layout_of(read(MINIMAL).job, "custommpi-abcd")
    assert "/local/workspaces/default/experiments/default/jobs/custommpi-abcd/" in plain.said["segment"]
