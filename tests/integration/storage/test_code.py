"""A job's code can lie in a store."""

from __future__ import annotations

import subprocess
import sys
import tarfile

from tests.integration.storage.conftest import Scene


def run(scene: Scene, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "petctl", "run", "-q", *words]
    folder, environment = scene.folder, scene.environ()
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=environment, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_script_and_an_archive_in_a_store(scene: Scene) -> None:
    (scene.folder / "main.py").write_text("import sys; print('main', *sys.argv[1:])\n")
    with tarfile.open(scene.folder / "project.tar.gz", "w:gz") as archive:
        archive.add(scene.folder / "main.py", "sub/main.py")
    for name in ("main.py", "project.tar.gz"):
        scene.copy(scene.folder / name, f"{scene.root}/code/{name}")
    assert run(scene, f"{scene.root}/code/main.py", "--lr", "0 1").stdout == "main --lr 0 1\n"
    assert run(scene, f"{scene.root}/code/project.tar.gz", "sub/main.py", "x").stdout == "main x\n"
    missing = run(scene, f"{scene.root}/code/nowhere.py", code=4)
    assert "nowhere.py" in missing.stderr
