"""What lies in petctl's home is closed to other users, whatever the umask, also where the home itself is open."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.cli.conftest import Petctl


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def reachable(directory: Path) -> list[Path]:
    """What another user can read or change: modes count only where every directory above lets them in."""
    found = []
    for entry in sorted(directory.iterdir()):
        mode = stat.S_IMODE(entry.lstat().st_mode)
        if entry.is_symlink():
            continue
        if mode & 0o066 or (entry.is_dir() and mode & 0o077):
            found.append(entry)
        if entry.is_dir() and mode & 0o011:
            found += reachable(entry)
    return found


def test_nothing_in_an_open_home_can_be_reached_by_others(petctl: Petctl, open_umask: None) -> None:
    petctl.home.mkdir(mode=0o755)
    petctl.script("train.py", "import os\nopen(os.environ['PETCTL_OUTPUT_DIR'] + '/model', 'w').write('x')\n")
    petctl("run", "-q", "train.py")
    petctl("secret", "set", "key", stdin="value")
    petctl("list")
    petctl("cluster", "create", "small", "--nodes", "1")
    try:
        petctl("run", "-q", "-c", "small", "train.py")
        petctl("sweep", "-q", "-p", "lr=1,2", "train.py", code=None)
        assert {"jobs", "clusters", "registry.db", "sweeps"} <= {entry.name for entry in petctl.home.iterdir()}
        assert reachable(petctl.home) == []
    finally:
        petctl("cluster", "delete", "small", "--force", code=None)


@pytest.mark.root
def test_another_user_can_neither_plant_a_job_nor_lock_the_queue(petctl: Petctl, open_umask: None) -> None:
    for directory in (petctl.directory, *petctl.directory.parents):
        if directory.stat().st_mode & 0o007 == 0 and directory.stat().st_uid == os.getuid():
            directory.chmod(0o755)
        if directory.name.startswith("pytest-of"):
            break
    petctl("run", "-q", "--", "true")
    (job,) = (petctl.home / "jobs").iterdir()
    attack = (
        "import fcntl, sys\n"
        "for path, mode in ((sys.argv[1], 'w'), (sys.argv[2], 'rb'), (sys.argv[3], 'rb')):\n"
        "    try:\n"
        "        with open(path, mode) as file: fcntl.lockf(file, fcntl.LOCK_SH)\n"
        "        print('could open', path)\n"
        "    except PermissionError: pass\n"
    )
    places = [str(job / "job.json"), str(petctl.home / "clusters/local/slots.db"), str(petctl.home / "registry.db")]
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all"]
    words = [*as_nobody, "/usr/bin/python3", "-c", attack, *places]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.root
def test_a_job_planted_in_a_shared_home_does_not_run(petctl: Petctl) -> None:
    petctl("run", "-q", "--", "true")
    petctl.home.chmod(0o770)
    os.chown(petctl.home, -1, 54321)
    done = petctl("list", code=2)
    assert "can be changed by the group number 54321 (mode 0770)" in done.stderr
    assert f"chmod -R go= {petctl.home}" in done.stderr
    petctl.home.chmod(0o700)
    petctl("list")
