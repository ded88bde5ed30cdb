"""-O NAME=VALUE, alone and over a job file, and what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.cli.jobs.run import command as run
from petctl.clusters.debug.options import DebugOptions
from petctl.errors import PetctlError
from petctl.job.file.read import job_from_dict
from petctl.job.spec import Job
from tests.unit.cli.test_words import job_of


def test_it_wins_over_the_job_file_and_adds_to_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("script: train.py\ncluster: debug\noptions: {debug: {start_delay: 5}}")
    assert job_of(str(file)).options == {"debug": DebugOptions(start_delay=5.0)}
    assert job_of("-O", "start_delay=1", "-O", "start_delay=2", str(file)).options["debug"].to_plain() == {
        "start_delay": 2.0
    }
    assert job_of("-c", "debug", "--option", "start_delay=0", "train.py").options == {"debug": DebugOptions()}
    assert Job(script="train.py", options={"debug": {"start_delay": 5}}) == job_from_dict(
        {"script": "train.py", "options": {"debug": {"start_delay": "5"}}}
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("-c", "debug", "-O", "start_dely=1"),
            "debug clusters have no option 'start_dely'; did you mean 'start_delay'",
        ),
        (("-c", "debug", "-O", "start_delay=soon"), "options.debug.start_delay: expected NUMBER, got 'soon'"),
        (("-c", "debug", "-O", "start_delay"), "-O start_delay: expected NAME=VALUE"),
        (("-c", "debug", "-O", "start_delay=[1"), "-O start_delay:2:1: not YAML"),
        (("-O", "x=1"), "-O x=1: local clusters have no options of their own; choose a cluster with -c"),
        (("-c", "debgu", "-O", "x=1"), "there is no cluster 'debgu'"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(PetctlError) as caught:
        job_of(*words, "train.py")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (5, "options: expected a mapping of kinds to their options, got 5"),
        ({"debgu": {}}, "options.debgu: no kind of cluster 'debgu' has options here; did you mean 'debug'?"),
        ({"debug": {"start": 1}}, "options.debug.start: unknown field; did you mean 'start_delay'?"),
        ({"debug": 5}, "options.debug: expected a mapping with start_delay, got 5"),
    ],
)
def test_what_is_wrong_in_a_job_file_is_named(said: object, sentence: str) -> None:
    with pytest.raises(PetctlError) as caught:
        job_from_dict({"script": "train.py", "options": said})
    assert str(caught.value) == f"job: {sentence}"


def test_the_help_lists_them_for_a_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "petctl.clusters.debug.backend", raising=False)
    for words in (["-c", "debug", "--help"], ["-h", "-c", "debug"]):
        shown = " ".join(CliRunner().invoke(run, words).stdout.split())
        assert "Options of debug clusters: -O start_delay=NUMBER Seconds that a job waits" in shown
        assert "[default: 0.0]" in shown
    assert "petctl.clusters.debug.backend" not in sys.modules
    for words in (["--help"], ["-c", "local", "--help"], ["-c", "nowhere", "--help"]):
        shown = CliRunner().invoke(run, words).stdout
        assert "Usage:" in shown and "Options of" not in shown
