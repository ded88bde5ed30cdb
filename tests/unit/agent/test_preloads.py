"""What is remembered about a command's imports: whole, or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from petctl.agent.preloads import Preloads, path_of


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cache" / "preload" / "key.json")


def test_what_was_saved_is_known_again(path: str) -> None:
    first = Preloads(path)
    assert first.add(["b", "a", "b", "c"]) == ["b", "a", "c"]
    assert first.add(["a", "d"]) == ["d"]
    first.keep_out(["c"], "starts a thread")
    assert first.add(["c"]) == []
    first.belong_to("this python")
    first.save()
    second = Preloads(path)
    assert (second.names, second.without, second.python) == (["b", "a", "d"], {"c": "starts a thread"}, "this python")
    assert [file.name for file in Path(path).parent.iterdir()] == ["key.json"]


def test_nodes_in_two_pods_with_one_cache_do_not_meet(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = []
    monkeypatch.setattr("os.replace", lambda draft, target: drafts.append(draft))
    for host in ("job-node-0", "job-node-1"):
        monkeypatch.setattr("os.uname", lambda host=host: SimpleNamespace(nodename=host))
        Preloads(path).save()
    assert len(set(drafts)) == 2


def test_another_interpreter_knows_nothing(path: str) -> None:
    known = Preloads(path)
    known.belong_to("this python")
    known.add(["a"])
    known.belong_to("that python")
    assert (known.names, known.python) == ([], "that python")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff{",
        b"[]",
        b"{}",
        b'{"python": 1, "names": ["a"], "without": {}}',
        b'{"python": "", "names": [1], "without": {}}',
        b'{"python": "", "names": "a", "without": {}}',
        b'{"python": "", "names": ["a"], "without": []}',
        b'{"python": "", "names": ["a"], "without": {"b": 1}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_nothing_known(path: str, content: bytes) -> None:
    Path(path).parent.mkdir(parents=True)
    Path(path).write_bytes(content)
    assert (Preloads(path).names, Preloads(path).without) == ([], {})


def test_a_place_that_cannot_be_written_is_no_error(path: str) -> None:
    Path(path).parent.parent.parent.joinpath("cache").write_text("in the way")
    known = Preloads(path)
    known.add(["a"])
    known.save()
    assert Preloads(path).names == []


def test_each_command_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = tmp_path / "python"
    python.write_text("one")
    paths = {
        path_of(str(python), ["python", "a.py"], "/x"),
        path_of(str(python), ["python", "a.py", "1"], "/x"),
        path_of(str(python), ["python", "a.py"], "/y"),
        path_of(sys.executable, ["python", "a.py"], "/x"),
    }
    python.write_text("another")
    paths.add(path_of(str(python), ["python", "a.py"], "/x"))
    assert len(paths) == 5
    assert all(path.startswith(f"{tmp_path}/petctl/preload/") for path in paths)
