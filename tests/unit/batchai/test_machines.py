"""The words of a cluster and its settings file, put together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from petctl.batchai.machines import CLUSTER, cluster_settings, idle_words, read_settings
from petctl.errors import UsageError
from petctl.spec.problems import FieldError


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
    with pytest.raises(FieldError) as caught:
        read_settings(written(tmp_path, {"properties": wrong}), CLUSTER)
    text = str(caught.value)
    assert "vmsize: unknown field; did you mean 'vmSize'?" in text
    assert "scaleSettings.manuel: unknown field; did you mean 'manual'?" in text
    assert "nodeSetup: must be a mapping" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"min": 1}, "--min and --max go together"),
        ({"min": 3, "max": 2}, "is above the most"),
        ({"image": "nonsense"}, "is no image"),
        ({"custom_image": "/subscriptions/x"}, "--custom-image needs --image"),
        ({"setup_task": "apt install x"}, "--setup-task-output"),
        ({"setup_task_output": "/tmp/x"}, "--setup-task"),
        ({"ssh_key": "/no/such/file"}, "no public key"),
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
    setup = cluster_settings({}, {"setup_task": "true", "setup_task_output": "/logs"})["nodeSetup"]
    assert setup["setupTask"]["commandLine"] == "true"
    assert setup["setupTask"]["secrets"] is None
    assert setup["mountVolumes"] is None


def test_what_has_no_effect_is_named() -> None:
    assert idle_words({"vm_size": "Standard_NC6", "generate_ssh_keys": True, "target": 2}) == [
        "--vm-size",
        "--generate-ssh-keys",
    ]
