"""The Chainer recipe of Batch AI in the image that it names, pulled from Docker Hub by podman as it is installed.

What the tests have for Docker Hub has that image, with what it had of the time: Python 3.6 and Open MPI.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.batchai.conftest import Shell
from tests.integration.batchai.test_recipe import (
    ACCOUNT,
    CLUSTER,
    DEPLOY,
    JOB,
    PREPARE,
    STREAM,
    SUBMIT,
    TRAIN,
    follow,
    needs_mpirun,
)
from tests.integration.containers.conftest import OPTIONS, RECIPES, ContainerEngine, docker_hub, image_files, podman
from tests.integration.containers.images import MARK
from tests.integration.containers.registry import Registry

__all__ = ["docker_hub", "image_files", "podman"]


@pytest.fixture
def boxed(tmp_path: Path, podman: ContainerEngine) -> Iterator[Shell]:
    """A shell whose jobs run in containers."""
    made = Shell(tmp_path, str(podman.program), OPTIONS)
    try:
        yield made
    finally:
        made.clean_up()
        left = podman.containers()
        if left:
            podman.run("rm", "-f", *left)
    assert not left, f"containers were left behind: {left}"


def test_the_recipe_runs_in_the_image_that_it_names(
    boxed: Shell, image_files: dict[str, Path], docker_hub: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_mpirun()
    if RECIPES[0] not in image_files:
        pytest.skip("needs Python 3.6 of pyenv, for an image as they were")
    seen = f"import os, sys; assert sys.version_info[:2] == (3, 6) and os.path.exists({MARK!r})\n"
    monkeypatch.setattr("tests.integration.batchai.test_recipe.TRAIN", seen + TRAIN.lstrip().partition('"""\n')[2])
    assert "not using the image" not in follow(boxed).stderr
    assert "batchaitraining/chainermn/manifests/openMPI" in docker_hub.asked


def test_a_stream_of_a_job_whose_image_is_not_there_tells_why(boxed: Shell) -> None:
    (boxed.directory / "web").mkdir()
    boxed.write("web/train_mnist.py", TRAIN)
    settings = {"imageSourceRegistry": {"image": "batchaitraining/gone:1"}}
    boxed.write("web/job.json", {**JOB, "properties": {**JOB["properties"], "containerSettings": settings}})
    boxed.program("wget", 'for last in "$@"; do :; done; cp "web/${last##*/}" .')
    for line in [*PREPARE, CLUSTER, *DEPLOY, SUBMIT]:
        boxed(line.replace("<storage account name>", ACCOUNT))
    told = boxed(STREAM, code=None)
    assert told.returncode != 0
    assert "the image batchaitraining/gone:1 cannot be pulled: " in told.stderr, told.stderr
    assert "stdout.txt" in told.stderr
