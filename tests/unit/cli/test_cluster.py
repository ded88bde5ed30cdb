"""The words of `petctl cluster`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import Argument, Context
from click.shell_completion import CompletionItem

from petctl.cli.clusters.cluster import _complete, command
from petctl.cli.failures import run_to_exit_code


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("petctl.clusters.local.pools.setup._start_detached", lambda *_: None)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run_to_exit_code(["cluster", *words]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_options_win_over_the_file(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "data").mkdir()
    (place / "cluster.yaml").write_text(
        "nodes: 5\nidle_time: 5m\nsetup: {command: first, env: {A: b}}\nmounts: [{path: x, command: mount it}]\n"
    )
    words = "create team -f cluster.yaml --min 1 --max 2 --setup second --setup-env C=d --mount data=data -o json"
    view = json.loads(said(capsys, *words.split()))
    assert view["scale"] == {"mode": "auto", "min": 1, "max": 2, "idle_time": 300.0}
    assert view["setup"] == {"command": "second", "output": "", "env": {"A": "b", "C": "d"}, "secrets": {}}
    assert [mount["path"] for mount in view["mounts"]] == ["x", "data"]
    assert view["counts"]["preparing"] == 1


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "create", "team", "--nodes", "2")
    assert said(capsys, "list").splitlines()[1].split() == ["team", "2", "2", "0", "0", "0", "0", "0"]
    assert said(capsys, "nodes", "team").splitlines()[2].split()[:2] == ["1", "idle"]
    assert "2 idle" in said(capsys, "show", "team")
    assert "1 idle" in said(capsys, "resize", "team", "1", "--deallocation", "wait")
    assert "0..3" in said(capsys, "autoscale", "team", "--min", "0", "--max", "3", "--idle-time", "1m")
    assert json.loads(said(capsys, "delete", "team", "-o", "json")) == {"deleted": "team"}
    assert json.loads(said(capsys, "list", "-o", "json")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("create team --nodes 1 --max 2", "not both"),
        ("create team --idle-time soon", "the idle time:"),
        ("create team --mount data", "must be written as NAME=VALUE"),
        ("create team -f missing.yaml", "missing.yaml: no such file"),
        ("create team -f batchai.json", "batchai cluster create"),
        ("show team", "there is no cluster 'team'"),
        ("delete local", "local is this machine itself"),
        ("resize team many", "not a valid integer"),
    ],
)
def test_wrong_words(capsys: pytest.CaptureFixture[str], place: Path, words: str, sentence: str) -> None:
    (place / "batchai.json").write_text('{"properties": {"vmSize": "STANDARD_NC6"}}')
    assert sentence in said(capsys, *words.split(), code=2)


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("setup: [1, 2]", "--setup-env A=B", "cluster.yaml:2:8: setup: expected an object with command"),
        ("setup: {command: x, env: y}", "--setup-env A=B", "cluster.yaml:2:26: setup.env: expected a mapping"),
        (
            "setup: {command: x, secrets: [y]}",
            "--setup-secret A=B",
            "yaml:2:30: setup.secrets: expected a mapping",
        ),
        ("mounts: 5", "--mount a=/", "cluster.yaml:2:9: mounts: expected a list of"),
        ("idle_time: .nan", "", "cluster.yaml:2:12: idle_time: expected seconds or a duration"),
        ("setup: x", "--setup=", "cluster.yaml:2:8: setup.command: expected a shell command"),
    ],
)
def test_a_file_that_is_wrong_stays_so_under_options(
    capsys: pytest.CaptureFixture[str], place: Path, text: str, words: str, sentence: str
) -> None:
    (place / "cluster.yaml").write_text(f"nodes: 1\n{text}\n")
    assert sentence in said(capsys, "create", "team", "-f", "cluster.yaml", *words.split(), code=2)


def test_names_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "create", "team")
    ctx, name = Context(command), Argument(["name"])
    found = _complete(ctx, name, "te")
    assert [item.value for item in found if isinstance(item, CompletionItem)] == ["team"]
    assert _complete(ctx, name, "x") == []
