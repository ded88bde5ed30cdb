"""ACT in containers: code is built in the image that runs have, and a run of it needs no building."""

from __future__ import annotations

import subprocess
import sys

from tests.integration.containers.conftest import PYTHON, ContainerStage
from tests.integration.containers.images import MARK

FILES = {
    "aux_data/aml/aml.yaml": f"experiment_name: built\nuse_custom_docker: true\ndocker: {{image: {PYTHON}}}\n",
    "compile.aml.sh": f"test -e {MARK} && echo $1 > made\n",
    "train.py": f"import os; print(open('made').read().strip(), os.path.exists({MARK!r}))\n",
}


def act(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "petctl.cli.compat.act", *words]
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
