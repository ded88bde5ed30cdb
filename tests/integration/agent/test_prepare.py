"""What a node does before its first workers: requirements are installed once per machine, lines take turns."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from petctl.rendezvous.core.messages import SUCCEEDED
from tests.integration.agent.conftest import Bench
from tests.integration.agent.test_failures import failure
from tests.integration.waiting import until

SAYS = "import tiny, sys, yaml; open(sys.argv[1], 'a').write(f'{tiny.VALUE} {sys.executable}\\n')"


def make_wheel(directory: Path, value: int) -> str:
    """A package that can be installed without asking anybody."""
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(directory / name, "w") as wheel:
        wheel.writestr("tiny.py", f"VALUE = {value}\n")
        about = "tiny-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are kept in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "petctl" / "environments"


def environments(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_requirements_are_installed_once_beside_what_the_interpreter_has(bench: Bench, cache: Path) -> None:
    seen = bench.directory / "seen"
    (bench.directory / "requirements.txt").write_text(f"./{make_wheel(bench.directory, 7)}\nPyYAML\n")
    bench.open(
        "program",
        ["python", "-c", SAYS, str(seen)],
        cwd=str(bench.directory),
        requirements="requirements.txt",
        prepare='python -c "import tiny"',
        nodes=2,
    )
    nodes = [bench.agent(node="n0"), bench.agent(node="n1")]
    assert bench.ended(90).state == SUCCEEDED
    assert [node.wait() for node in nodes] == [0, 0]
    (made,) = environments(cache)
    assert seen.read_text() == f"7 {made}/bin/python\n" * 2
    assert "Successfully installed tiny-1.0" in "".join(p.read_text() for p in bench.logs.glob("prepare-*.out"))
    assert not list(made.glob("lib/*/site-packages/yaml"))  # the interpreter's own was good enough
    bench.nothing_left()


def test_what_cannot_be_installed_fails_the_job_with_pips_words(bench: Bench, cache: Path) -> None:
    (bench.directory / "requirements.txt").write_text("./missing-1.0-py3-none-any.whl\n")
    bench.open("shell", ["true"], cwd=str(bench.directory), requirements="requirements.txt")
    bench.agent()
    outcome = bench.ended(90)
    assert outcome.state == "failed"
    assert "missing-1.0" in failure(bench).traceback
    assert not [path for path in environments(cache) if (path / "petctl-complete").exists()]


def test_an_environment_that_was_cut_short_is_made_again(bench: Bench, cache: Path) -> None:
    (bench.directory / "requirements.txt").write_text(f"./{make_wheel(bench.directory, 8)}\n")
    bench.open("shell", ["python -c 'import tiny'"], cwd=str(bench.directory), requirements="requirements.txt")
    node = bench.agent()
    until(lambda: cache.is_dir() and environments(cache), "the environment is being made")
    node.process.kill()
    node.process.wait()
    bench.agent(node="n1")
    assert bench.ended(90).state == SUCCEEDED


def test_nodes_that_share_a_directory_prepare_one_after_another(bench: Bench) -> None:
    busy = bench.directory / "busy"
    line = f"mkdir {busy} || exit 9; for i in 1 2 3 4 5; do :; done; rmdir {busy}"
    bench.open("shell", ["true"], prepare=line, nodes=3)
    for number in range(3):
        bench.agent(node=f"n{number}")
    assert bench.ended(90).state == SUCCEEDED
