"""Which files of a copy of the code are results, and how they become that."""

from __future__ import annotations

import os
from pathlib import Path

from petctl.agent.data.new_files import keep_new_files, new_files, note_built, note_files, unsaved_files


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def names(copy: Path) -> list[str]:
    return sorted(name for name, _ in new_files(str(copy)))


def test_what_is_added_or_changed_is_new(tmp_path: Path) -> None:
    copy, draft = tmp_path / "code", tmp_path / "draft"
    make(draft, "train.py", "sub/old.txt", "grows")
    (draft / "data").symlink_to(tmp_path)
    note_files(str(draft), str(copy))
    draft.rename(copy)
    assert names(copy) == []
    make(copy, "sub/new.txt", "__pycache__/train.pyc")
    (copy / "grows").write_text("more")
    os.mkfifo(copy / "pipe")
    (copy / "link").symlink_to("train.py")
    assert names(copy) == ["grows", "sub/new.txt"]


def test_where_nobody_knows_what_was_there_nothing_is_new(tmp_path: Path) -> None:
    make(tmp_path / "code", "a")
    assert names(tmp_path / "code") == [] and keep_new_files(str(tmp_path / "code"), str(tmp_path / "out")) == ""


def test_what_a_preparation_built_is_not_new(tmp_path: Path) -> None:
    copy = tmp_path / "code"
    make(copy, "a")
    note_files(str(copy))
    make(copy, "built")
    note_built(str(copy))
    make(copy, "made")
    note_built(str(copy))  # of a second node, whose neighbour trains already
    assert names(copy) == ["made"]


def test_they_are_moved_and_named(tmp_path: Path) -> None:
    copy, outputs = tmp_path / "code", tmp_path / "outputs"
    make(copy, "a")
    note_files(str(copy))
    make(copy, "b.txt", *(f"deep/{number}" for number in range(6)))
    make(outputs / "beside-code", "b.txt")
    told = keep_new_files(str(copy), str(outputs))
    assert told.startswith(f"written beside the code, now in {outputs}/beside-code: b-2.txt, deep/0")
    assert told.endswith("and 2 more") and names(copy) == []
    assert (outputs / "beside-code/b-2.txt").read_text() == "b.txt"
    assert keep_new_files(str(copy), str(outputs)) == ""


def test_what_cannot_be_moved_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "code"
    make(copy, "a")
    note_files(str(copy))
    make(copy, "b")
    (tmp_path / "outputs").write_text("a file")
    told = keep_new_files(str(copy), str(tmp_path / "outputs"))
    assert f"still in {copy}" in told and told.endswith(": b") and (copy / "b").exists()


def test_files_that_nothing_sends_are_counted_and_named() -> None:
    assert unsaved_files(["model.pt"], "") == (
        "1 file it wrote is lost with its pod: model.pt; a store (--store) keeps such files"
    )
    many = [f"{number}.pt" for number in range(8)]
    assert unsaved_files(many, "/state/outputs") == (
        "8 files it wrote are only on its machine, in /state/outputs: 0.pt, 1.pt, 2.pt, 3.pt, 4.pt and 3 more; "
        "a store (--store) keeps such files"
    )
