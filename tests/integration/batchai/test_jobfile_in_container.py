"""A Batch AI job file that names an image: its nodes are containers, and see its shares where they are outside."""

from __future__ import annotations

import json
from pathlib import Path

from petctl.compat.batchai.jobfile import Found, JobFile, read_mapping
from petctl.compat.batchai.layout import directories
from petctl.jobs import submit
from tests.integration.containers.conftest import PYTHON, ContainerStage, docker_hub, image_files, podman, stage

__all__ = ["docker_hub", "image_files", "podman", "stage"]

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
LINE = "read -r line <$AZ_BATCHAI_INPUT_DATA/words && echo $line && echo made >$AZ_BATCHAI_OUTPUT_MODEL/made && pwd"


def test_shares_are_seen_in_the_container(stage: ContainerStage) -> None:
    stage.configure()
    share = stage.path / "elsewhere" / "share"
    share.mkdir(parents=True)
    (share / "words").write_text("from the share\n")
    properties = {
        "nodeCount": 2,
        "stdOutErrPathPrefix": f"{ROOT}/share",
        "customToolkitSettings": {"commandLine": LINE},
        "containerSettings": {"imageSourceRegistry": {"image": PYTHON}},
        "jobPreparation": {"commandLine": "python3 -c 'import sys; print(sys.prefix)'"},
        "mountVolumes": {
            "azureFileShares": [
                {"azureFileUrl": "https://acc.file.core.windows.net/share", "relativeMountPath": "share"},
            ]
        },
        "inputDirectories": [{"id": "DATA", "path": f"{ROOT}/share"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": f"{ROOT}/share"}],
    }
    handle = submit(read_mapping(properties, JobFile(lambda volume: Found(str(share)))).job)
    status = handle.wait(120)
    assert status.state == "succeeded", (status.sentence, json.dumps(str(status.error)))
    found = directories(handle.record())
    text = (Path(found["stdouterr"]) / "stdout.txt").read_text()
    assert text.startswith("from the share\n")
    assert text.endswith("/batchai/0/work\n")
    assert (Path(found["MODEL"]) / "made").read_text() == "made\n"
