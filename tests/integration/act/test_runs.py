"""Runs on this machine with pinned code: which code they have, that ends come before new beginnings, and built code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.compat.act import build, published, runs
from petctl.compat.act.compile import RunRequest
from petctl.compat.act.config.config import Config, find_config
from petctl.compat.act.pins import last_pin, pin
from petctl.errors import PetctlError, UsageError
from petctl.jobs import JobHandle, get, list_jobs
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.integration.waiting import DEADLINE, until

# Says which code it is and what it sees of the project, then does as it is told.
TRAIN = """
import os, pathlib, signal, sys, time
print("first", flush=True)
print(*sorted(str(path) for path in pathlib.Path().glob("*") if not path.name.startswith(".")), flush=True)
print("keys" if pathlib.Path("aux_data/configs").exists() else "no keys", flush=True)
if "write" in sys.argv:
    pathlib.Path("output/made").write_text("made")
if "stay" in sys.argv:
    go = pathlib.Path(sys.argv[-1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (go / "there").write_text("")
    while not (go / "go").exists():
        time.sleep(0.01)
"""


class Project:
    """A directory with a program, an account file and a configuration or several."""

    def __init__(self, root: Path) -> None:
        self.root, self.said = root, list[str]()
        self.write("train.py", TRAIN)
        self.write("aux_data/configs/vig.yaml", "account_name: a\naccount_key: a2V5\ncontainer_name: c\n")
        self.write("petctl.yaml", "clusters: {local: {slots: 3}}\n")
        self.config("aml")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def config(self, name: str, **keys: object) -> Config:
        said = {"experiment_name": "jianfw", "gpu_per_node": 1, "device": "cpu", "launcher": "elastic", **keys}
        self.write(f"aux_data/aml/{name}.yaml", json.dumps(said))
        return find_config(name)

    def submit(self, config: Config, *words: object, **options: Any) -> JobHandle:
        argv = [sys.executable, *map(str, words)]
        return runs.submit(config, RunRequest(argv), say=self.said.append, **options)

    def heard(self) -> list[str]:
        """What was said since the last time."""
        said, self.said[:] = list(self.said), []
        return said


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Nothing of its runs is left afterwards."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("AML_CONFIG_PATH", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    try:
        yield Project(tmp_path / "project")
    finally:
        for home in {tmp_path / "home", tmp_path / "other"}:
            monkeypatch.setenv("PETCTL_HOME", str(home))
            for status in list_jobs():
                get(status.id).remove(force=True)


def printed(handle: JobHandle) -> list[str]:
    """What a run has printed when it has ended well."""
    lines = [line.text.decode().rstrip() for line in handle.logs(follow=True)]
    assert handle.wait(DEADLINE).state == "succeeded", lines
    return lines


def test_runs_have_the_code_that_was_pinned(project: Project) -> None:
    aml = find_config()
    pinned = pin(aml)
    assert "aux_data/configs" in pinned.left_out
    project.write("train.py", TRAIN.replace("first", "second"))
    project.write("assets/old/log.txt", "")
    first = project.submit(aml, "train.py")
    (warning,) = project.heard()
    assert "has changed since" in warning and "(train.py)" in warning
    second = project.submit(aml, "train.py", new_code=True)
    assert "pinned" in project.heard()[0]
    assert printed(first) == ["first", "aux_data petctl.yaml train.py", "no keys"]
    assert printed(second) == ["second", "aux_data petctl.yaml train.py", "no keys"]
    assert first.id.startswith("jianfw_") and first.record().job["labels"]["act"] == "aml"
    assert runs.find_run(first.id[-5:]).id == first.id
    assert runs.abort(f"./assets/{first.id}/") == f"{first.id}: has ended already"

    # A run that was submitted with code that is pinned no more has it still, and so has whoever runs it again.
    assert first.record().code["id"] == pinned.id
    again = runs.resubmit(first.id[-5:], say=project.said.append)
    assert again.id != first.id and printed(again)[0] == "second"
    assert (
        runs.local(aml, RunRequest([sys.executable, "train.py"]), project.said.append).wait(DEADLINE).state
        == "succeeded"
    )
    assert project.heard() == []


def test_a_run_ends_before_it_begins_again(project: Project, tmp_path: Path) -> None:
    c1, narrow = project.config("c1", gpu_per_node=4), project.config("narrow")
    c2 = project.config("c2", gpu_per_node=4, env={"WHERE": "c2"})
    pin(c1)
    wish = RunRequest([sys.executable, "train.py", "stay", str(tmp_path)], num_gpu=4, single=True)
    run = runs.submit(c1, wish, say=project.said.append)
    until((tmp_path / "there").exists, "the run is there")

    # Whatever can be refused is refused while the old run still runs.
    with pytest.raises(UsageError, match="4 nodes and this machine has 3"):
        runs.resubmit(run.id, to=narrow, say=project.said.append)
    assert run.status().state in ("starting", "running")
    project.heard()

    # Killed while it waits for the old one to end, it has lost nothing: the same words go on.
    words = [sys.executable, "-c", f"from petctl.compat.act.runs import resubmit; resubmit({run.id!r})"]
    waiting = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(Path(petctl.__file__).parents[1])})
    try:
        until((tmp_path / "home/jobs" / run.id / "cancel.json").exists, "it is being aborted")
    finally:
        os.kill(waiting.pid, signal.SIGKILL)
        waiting.wait()
    assert [status.id for status in list_jobs()] == [run.id]
    (tmp_path / "go").write_text("")
    again = runs.resubmit(run.id[-8:], to=c2, say=project.said.append)
    before, after = run.wait(DEADLINE), again.record()
    assert before.finished is not None and before.finished <= after.submitted
    assert (after.job["env"]["WHERE"], after.job.get("procs", "1")) == ("c2", "1") and after.job["labels"][
        "act"
    ] == "c2"
    assert printed(again)[0] == "first"

    # One of petctl's own jobs, which no configuration knows.
    plain = petctl.submit(petctl.Job(program=["/bin/sleep", "1000"], grace=1), id="jianfw_1563257309_60ce2fc7")
    other = runs.resubmit("60ce2fc7", c1, say=project.said.append)
    assert plain.status().state == "cancelled" and other.record().command == "/bin/sleep 1000"


def account(server: Azurite) -> tuple[str, Mapping[str, str]]:
    container = f"act-{time.time_ns()}"
    server.make(container)
    said = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "container_name": container}
    return container, {**said, "endpoint": f"{server.url}/{ACCOUNT}"}


def test_code_in_the_blob_and_built_code(
    project: Project, azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container, said = account(azurite)
    project.write("aux_data/configs/vig.yaml", json.dumps(said))
    at = {"azure_blob_config_file": "./aux_data/configs/vig.yaml"}
    places = {"code_path": {**at, "path": "my/code.zip"}, "output_folder": {**at, "path": "my/output"}}
    config = project.config("blob", config_param=places)
    blobs = azurite.client().get_container_client(container)

    # Nothing is pinned, and nothing lies in the blob: then it is pinned now. The mapped folder takes what is written.
    run = project.submit(config, "train.py", "write")
    assert project.heard()[0].startswith("no code is pinned yet: pinned 4 files")
    assert printed(run)[1] == "aux_data output petctl.yaml train.py"
    until(lambda: [blob.name for blob in blobs.list_blobs()] == ["my/output/made"], "what it made is in the blob")
    assert ACCOUNT_KEY not in json.dumps(run.record().to_dict())

    # Here, on this machine: a folder that lies in the project is used as it is.
    (project.root / "output").mkdir()
    printed(runs.local(config, RunRequest([sys.executable, "train.py", "write"], num_gpu=8), project.said.append))
    assert (project.root / "output/made").read_text() == "made" and project.heard() == []

    # Built where runs would be; what was built is pinned, and published for others.
    project.write(".petctlignore", "*.so\n")
    project.write("compile.aml.sh", 'echo "$1" > fast.so; echo built\n')
    made = build.build(config, "with care", say=project.said.append)
    assert made.built and made.special == [] and "built" in project.heard()
    assert last_pin(config) == made
    assert [blob.name for blob in blobs.list_blobs()] == ["my/code.zip", "my/output/made"]
    check = "import pathlib; print(pathlib.Path('fast.so').read_text().strip())"
    assert printed(project.submit(config, "-c", check)) == ["with"]
    assert project.heard() == [] and not (project.root / "fast.so").exists()
    assert [status.name for status in list_jobs() if status.name == "act-build"] == []

    # Another machine has nothing pinned and takes the zip, also when its directory is empty.
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "other"))
    (project.root / "train.py").unlink()
    elsewhere = project.submit(config, "train.py")
    assert project.heard()[0].startswith(f"nothing was pinned here yet: took {config.code_path.location}")  # type: ignore[union-attr]
    assert "fast.so" in printed(elsewhere)[1]
    assert published.publish(config, made) == f"az://{ACCOUNT}/{container}/my/code.zip"

    # A build that fails leaves the code as it is, and says where to look.
    project.write("compile.aml.sh", "echo no compiler; exit 3\n")
    with pytest.raises(PetctlError, match=r"compile.aml.sh has failed: .*petctl logs act-build-"):
        build.build(config, say=project.said.append)
    left = last_pin(config)
    assert left is not None and not left.built and left.special == ["compile.aml.sh"]
    assert "no compiler" in project.heard()


def test_one_process_is_started_by_mpirun_as_several_are(project: Project) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun: apt install openmpi-bin")
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "AZ_BATCH_HOST_LIST", "RANK", "WORLD_SIZE")
    project.write("train.py", f"import os; print(*[os.environ.get(name) for name in {names}])")
    one = project.config("one", launcher="mpi")
    submitted = runs.submit(one, RunRequest([sys.executable, "train.py"], num_gpu=1), say=project.said.append)
    for run in (submitted, runs.local(one, RunRequest([sys.executable, "train.py"]), project.said.append)):
        assert printed(run) == ["0 1 127.0.0.1 0 1"]
