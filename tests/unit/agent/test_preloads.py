"""What is remembered about a command's imports: whole, or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.agent.warm.preloads import Preloads, digest_of, path_of

OWN = frozenset({"RANK"})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cache" / "preload" / "key.json")


def test_what_was_saved_is_known_again(path: str) -> None:
    first = Preloads(path)
    assert [first.add(name, {}, OWN) for name in ["b", "a", "b", "c"]] == [True, True, False, True]
    first.keep_out(["c"], "starts a thread")
    assert not first.add("c", {}, OWN)
    first.belong_to("this python")
    first.save()
    second = Preloads(path)
    assert (second.names, second.without, second.python) == (["b", "a"], {"c": "starts a thread"}, "this python")
    assert [file.name for file in Path(path).parent.iterdir()] == ["key.json"]


HARMLESS: list[dict[str, Any]] = [
    {},
    {"env": {"HF_HUB_OFFLINE": "1"}},
    {"env": {"X": "false"}},
    {"filters": [["ignore", None, "a:b", None, 0]]},
]
PRIVATE: list[dict[str, Any]] = [
    {"env": {"HF_TOKEN": "hf_abcdefgh"}},
    {"env": {"PIN": "123"}},
    {"env": {"X": "some text"}},
    {"env": {"X": None}},
    {"env": {"GIVEN": "1"}},
    {"path": ["/home/me"]},
    {"argv": ["--password", "x"]},
    {"cwd": "/"},
    {"settings": {"the locale": "C"}},
]


def test_only_harmless_states_are_written_and_the_others_are_not_known_again(path: str) -> None:
    known = Preloads(path)
    known.fit({"GIVEN": "0"})
    states = [*HARMLESS, *PRIVATE]
    for number, state in enumerate(states):
        known.add(f"m{number}", state, OWN)
    assert list(known.states.values()) == states
    known.save()
    text = Path(path).read_text()
    assert not any(word in text for word in ("hf_abcdefgh", "123", "some text", "/home/me", "--password", "locale"))
    again = Preloads(path)
    assert again.names == known.names
    assert list(again.states.values()) == [*HARMLESS, *[None] * len(PRIVATE)]
    assert again.add("m4", PRIVATE[0], OWN)  # until a worker tells
    assert again.states["m4"] == PRIVATE[0]


def test_a_variable_that_is_there_at_the_start_makes_what_is_known_about_it_unknown(path: str) -> None:
    known = Preloads(path)
    known.add("a", {"env": {"HF_HUB_OFFLINE": "1"}}, OWN)
    known.add("b", {"env": {"OTHER": "1"}}, OWN)
    known.fit({"HF_HUB_OFFLINE": "0"})
    assert known.states == {"a": None, "b": {"env": {"OTHER": "1"}}}


def test_variables_that_workers_do_not_agree_about_do_not_count(path: str) -> None:
    known = Preloads(path)
    known.add("a", {"env": {"RUN": "1", "X": "x"}}, OWN)
    assert known.add("a", {"env": {"RUN": "2", "X": "x", "RANK": "1"}}, OWN)
    assert (known.varying, known.states) == ({"RUN"}, {"a": {"env": {"X": "x"}}})
    known.add("b", {"env": {"RUN": "3", "CUDA_VISIBLE_DEVICES": "1"}}, OWN)
    assert (known.varying, known.states["b"]) == ({"RUN", "CUDA_VISIBLE_DEVICES"}, {})
    known.save()
    assert Preloads(path).varying == known.varying


@pytest.mark.parametrize("other", [{"env": {"OMP_NUM_THREADS": "2"}}, {"cwd": "/"}, {"env": {"RUN": "1"}, "argv": []}])
def test_modules_that_workers_import_in_other_states_are_left_to_them(path: str, other: dict[str, object]) -> None:
    known = Preloads(path)
    known.add("a", {}, OWN)
    assert known.add("a", other, OWN)
    assert list(known.without) == ["a"]
    assert known.states == {}


def test_another_script_may_do_other_things_before_its_imports(path: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("script.py", "package/module.py"):
        (tmp_path / name).write_text("1")
    one, other = digest_of(["script.py"], str(tmp_path)), digest_of(["-m", "package.module"], str(tmp_path))
    assert one and one == other
    assert digest_of(["-c", "pass"], str(tmp_path)) == digest_of(["nowhere.py"], str(tmp_path)) == ""
    known = Preloads(path)
    known.belong_to_code(one)
    known.add("a", {}, OWN)
    known.save()
    again = Preloads(path)
    again.belong_to_code(one)
    assert again.names == ["a"]
    (tmp_path / "script.py").write_text("2")
    again.belong_to_code(digest_of(["script.py"], str(tmp_path)))
    assert again.names == []


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
    known.add("a", {}, OWN)
    known.belong_to("that python")
    assert (known.names, known.python) == ([], "that python")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff{",
        b"[]",
        b"{}",
        b'{"python": "", "names": ["a"], "without": {}}',
        b'{"python": 1, "code": "", "groups": [[{}, ["a"]]], "without": {}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[{}, [1]]], "without": {}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[{}, "a", 1]], "without": {}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[[], ["a"]]], "without": {}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[{"env": []}, ["a"]]], "without": {}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[{}, ["a"]]], "without": [], "varying": []}',
        b'{"python": "", "code": "", "groups": [[{}, ["a"]]], "without": {"b": 1}, "varying": []}',
        b'{"python": "", "code": "", "groups": [[{}, ["a"]]], "without": {}, "varying": [1]}',
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
    known.add("a", {}, OWN)
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
