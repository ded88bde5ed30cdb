"""ACT in containers: code is built in the image that runs have, and a run of it needs no building."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.jobs import get
from tests.integration.containers.conftest import PYTHON, RECIPES, ContainerStage
from tests.integration.containers.images import MARK
from tests.integration.containers.registry import Registry

FILES = {
    "aux_data/aml/aml.yaml": "experiment_name: built\nlauncher: elastic\n"
    f"use_custom_docker: true\ndocker: {{image: {PYTHON}}}\n",
    "compile.aml.sh": f"test -e {MARK} && echo $1 > made\n",
    "train.py": f"import os; print(open('made').read().strip(), os.path.exists({MARK!r}))\n",
}


def act(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "petctl.compat.act.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)


def test_code_is_built_in_the_image_of_its_runs(stage: ContainerStage) -> None:
    for name, text in FILES.items():
        path = stage.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    built = act("-ca", "anew", "initc")
    assert built.returncode == 0 and f"in the image {PYTHON}" in built.stderr, built.stderr
    done = act("local", "python3", "train.py")
    assert (done.returncode, done.stdout) == (0, "anew True\n"), done.stderr


def test_the_image_of_acts_document_runs_as_it_is_written(
    stage: ContainerStage, image_files: dict[str, Path], docker_hub: Registry
) -> None:
    """`amsword/setup:py36pt16`, with no registry before it, from what the tests have for Docker Hub."""
    if RECIPES[0] not in image_files or shutil.which("mpirun") is None:
        pytest.skip("needs Python 3.6 of pyenv and Open MPI, for an image as they were")
    image = RECIPES[1]
    aml = f"experiment_name: seed\nuse_custom_docker: true\ndocker: {{image: {image}}}\n"
    (stage.path / "aux_data/aml").mkdir(parents=True)
    (stage.path / "aux_data/aml/aml.yaml").write_text(aml + "multi_process: True\ngpu_per_node: 2\ndevice: cpu\n")
    (stage.path / "train.py").write_text(
        "import os, sys\n"
        f"print(sys.version_info[:2], os.path.exists({MARK!r}), os.environ['OMPI_COMM_WORLD_SIZE'], flush=True)\n"
    )
    submitted = act("-n", "4", "submit", "python", "train.py")
    assert submitted.returncode == 0 and "not using the image" not in submitted.stderr, submitted.stderr
    handle = get(submitted.stdout.strip())
    status = handle.wait(100)
    assert status.state == "succeeded", (status.sentence, status.error)
    said = b"".join(line.text for line in handle.logs()).decode().splitlines()
    assert said == ["(3, 6) True 4"] * 4
    assert "amsword/setup/manifests/py36pt16" in docker_hub.asked
    stage.engine.run("rmi", "-f", image)
