"""A shell of each test's own with `az` and `batchai` in it, and no job, cluster or process left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[3] / "src"
PATIENCE = 120


class Shell:
    """Command lines, as a user's shell runs them."""

    def __init__(self, directory: Path, container: str = "/nowhere/podman", options: Sequence[str] = ()) -> None:
        """`container`: the container engine; without it there is none, whatever this machine has."""
        self.directory, self.home, self.programs = directory, directory / "home", directory / "bin"
        config = directory / "config" / "petctl"
        config.mkdir(parents=True)
        settings = {"container": container, "container_options": list(options)}
        (config / "config.yaml").write_text(json.dumps({"clusters": {"local": settings}}))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "PETCTL_"))}
        self.environment = {
            **clean,
            "PETCTL_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PYTHONPATH": str(SOURCE),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }
        self.program("petctl", f'exec {sys.executable} -P -m petctl "$@"')
        self("petctl compat install az --dir bin --force")
        self("petctl compat install batchai --dir bin --force")

    def program(self, name: str, lines: str) -> None:
        """A small program on the PATH."""
        self.programs.mkdir(exist_ok=True)
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)

    def __call__(self, line: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs one line to its end and checks its exit code."""
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.directory,
            env=self.environment,
        )
        if code is not None:
            assert done.returncode == code, f"{line}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, line: str) -> Any:
        return json.loads(self(line).stdout)

    def write(self, name: str, content: object) -> str:
        """A file in the shell's directory: text, or JSON."""
        (self.directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    def clean_up(self) -> None:
        """Ends every job and cluster; their processes are gone when it returns."""
        for name in self("batchai group list --query [].name -o tsv", code=None).stdout.split():
            self(f"batchai group delete -n {name} -y", code=None)
        jobs = self("petctl list -q", code=None).stdout.split()
        if jobs:
            self(f"petctl rm --force {' '.join(jobs)}", code=None)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.clean_up()
