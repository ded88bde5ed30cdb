"""docs/first-ten-minutes.md, typed from its first command to its last."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .conftest import Petctl

PAGE = (Path(__file__).parents[3] / "docs" / "first-ten-minutes.md").read_text()


def test_every_command_of_the_page_works(petctl: Petctl, tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (job_file,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    commands = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    lines = [line.strip() for line in commands.splitlines() if line.startswith("    ")]
    assert len(lines) > 20
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "job.yaml").write_text(job_file)
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=tmp_path,
        env=petctl.environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 60 of 60, 4 workers" in done.stdout
    assert "failures   0 of 3 restarts used" in done.stdout  # a lost node costs none
    assert "node 0 was lost" in done.stdout
    assert "trained" in done.stdout
    assert "exit code 1" in done.stdout and "No module named 'torhc'" in done.stdout
