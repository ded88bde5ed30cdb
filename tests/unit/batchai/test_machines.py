"""The words of a cluster and its settings file, put together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from petctl.compat.batchai.jobfile import read_settings
from petctl.compat.batchai.service.machines import CLUSTER, cluster_settings, idle_words, kept
from petctl.errors import SpecError, UsageError


def written(folder: Path, document: Any) -> str:
    path = folder / "cluster.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    given = read_settings(
        written(
            tmp_path,
            {
                "$schema": "https://example/cluster.json",
                "properties": {
                    "vmSize": "STANDARD_NC6",
                    "vmPriority": "lowpriority",
                    "scaleSettings": {"manual": {"targetNodeCount": 1, "nodeDeallocationOption": "terminate"}},
                },
            },
        ),
        CLUSTER,
    )
    settings = cluster_settings(given, {"target": 3})
    assert settings["vmSize"] == "STANDARD_NC6"
    assert settings["vmPriority"] == "lowpriority"
    assert settings["scaleSettings"] == {
        "autoScale": None,
        "manual": {"nodeDeallocationOption": "terminate", "targetNodeCount": 3},
    }
    automatic = cluster_settings(given, {"min": 0, "max": 4})["scaleSettings"]
    assert automatic["manual"] is None
    assert automatic["autoScale"] == {"initialNodeCount": 0, "maximumNodeCount": 4, "minimumNodeCount": 0}


def test_every_field_that_is_none_is_named(tmp_path: Path) -> None:
    wrong = {"vmsize": "x", "scaleSettings": {"manuel": {}}, "nodeSetup": []}
    with pytest.raises(SpecError) as caught:
        read_settings(written(tmp_path, {"properties": wrong}), CLUSTER)
    text = str(caught.value)
    assert "vmsize: unknown field; did you mean 'vmSize'?" in text
    assert "scaleSettings.manuel: unknown field; did you mean 'manual'?" in text
    assert "properties.nodeSetup: expected an object with setupTask" in text
    assert f"{tmp_path / 'cluster.json'}:1:" in text


TASK = {"commandLine": "true", "stdOutErrPathPrefix": "/logs"}
SHARE = {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs"}


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (None, "got nothing"),
        ([], "got a list"),
        ({"properties": None}, "properties: expected an object"),
        ({"vmPriority": 5}, "vmPriority"),
        ({"scaleSettings": {"manual": {"nodeDeallocationOption": 3}}}, "nodeDeallocationOption"),
        ({"scaleSettings": {"autoScale": {"maximumNodeCount": 2}}}, "minimumNodeCount: is missing"),
        ({"userAccountSettings": {"adminUserSshPublicKey": {}}}, "adminUserSshPublicKey"),
        ({"nodeSetup": {"setupTask": {**TASK, "stdOutErrPathPrefix": []}}}, "stdOutErrPathPrefix"),
        ({"nodeSetup": {"setupTask": {**TASK, "environmentVariables": "x"}}}, "environmentVariables"),
        ({"nodeSetup": {"setupTask": {**TASK, "environmentVariables": [{"name": "A"}]}}}, r"\[0\].value: is missing"),
        ({"nodeSetup": {"setupTask": {**TASK, "secrets": [{"value": "x"}]}}}, r"secrets\[0\].name"),
        ({"nodeSetup": {"mountVolumes": {"azureFileShares": 5}}}, "azureFileShares"),
        ({"nodeSetup": {"mountVolumes": {"fileServers": [{"fileServer": "x"}]}}}, "fileServer: expected"),
        ({"nodeSetup": {"mountVolumes": {"azureFileShares": [{**SHARE, "relativeMountPath": "x"}]}}}, "is unknown"),
    ],
)
def test_what_is_not_as_it_should_be_is_told_with_its_place(tmp_path: Path, document: Any, where: str) -> None:
    with pytest.raises(SpecError, match=where) as caught:
        read_settings(written(tmp_path, document), CLUSTER)
    assert "cluster.json" in str(caught.value)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_bytes(b"\xff{")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_settings(str(tmp_path / "cluster.json"), CLUSTER)
    with pytest.raises(SpecError, match="is a directory, not a settings file"):
        read_settings(str(tmp_path), CLUSTER)


def test_placeholders_are_filled_and_keys_are_not_kept(tmp_path: Path) -> None:
    mount = {**SHARE, "relativeMountPath": "logs", "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}}
    insights = {"instrumentationKey": "open-sesame"}
    setup = {
        "mountVolumes": {"azureFileShares": [mount]},
        "setupTask": {**TASK, "secrets": [{"name": "T", "value": "open-sesame"}]},
        "performanceCountersSettings": {"appInsightsReference": insights},
    }
    path = written(tmp_path, {"properties": {"nodeSetup": setup}})
    settings = cluster_settings(read_settings(path, CLUSTER, "mystorage", "open-sesame"), {})
    (share,) = settings["nodeSetup"]["mountVolumes"]["azureFileShares"]
    assert share["azureFileUrl"] == "https://mystorage.file.core.windows.net/logs"
    assert share["credentials"] == {"accountKey": "open-sesame"}
    shown = kept(settings)
    assert "open-sesame" not in json.dumps(shown)
    (share,) = shown["nodeSetup"]["mountVolumes"]["azureFileShares"]
    assert share["credentials"] == {"accountKey": None, "accountKeySecretReference": None}
    assert share["fileMode"] == "0777"
    assert shown["nodeSetup"]["setupTask"]["secrets"] == [{"name": "T", "value": None, "valueSecretReference": None}]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"min": 1}, "--min and --max go together"),
        ({"min": 3, "max": 2}, "is above the maximum"),
        ({"image": "nonsense"}, "is not an image"),
        ({"custom_image": "/subscriptions/x"}, "--custom-image needs --image"),
        ({"setup_task": "apt install x"}, "--setup-task-output"),
        ({"setup_task_output": "/tmp/x"}, "--setup-task"),
        ({"ssh_key": "/no/such/file"}, "not a public key"),
    ],
)
def test_words_that_do_not_fit_together(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        cluster_settings({}, words)


def test_images_have_short_names() -> None:
    assert cluster_settings({}, {"image": "UbuntuDSVM"})["virtualMachineConfiguration"]["imageReference"][
        "publisher"
    ] == ("microsoft-ads")
    image = cluster_settings({}, {"image": "a:b:c:"})["virtualMachineConfiguration"]["imageReference"]
    assert image == {"publisher": "a", "offer": "b", "sku": "c", "version": "latest", "virtualMachineImageId": None}


def test_a_setup_task_is_complete(tmp_path: Path) -> None:
    setup = kept(cluster_settings({}, {"setup_task": "true", "setup_task_output": "/logs"}))["nodeSetup"]
    assert setup["setupTask"]["commandLine"] == "true"
    assert setup["setupTask"]["secrets"] is None
    assert setup["mountVolumes"] is None


def test_what_has_no_effect_is_named() -> None:
    assert idle_words({"vm_size": "Standard_NC6", "generate_ssh_keys": True, "target": 2}) == [
        "--vm-size",
        "--generate-ssh-keys",
    ]
