"""Where code comes from: the texts, and what is wrong with them. Git and the web are in the integration tests."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from petctl.bundle import take
from petctl.bundle.sources import tree_of
from petctl.errors import NotFound, UsageError
from tests.unit.bundle.conftest import Grow


def test_a_folder_and_a_file_are_used_where_they_lie(grow: Grow) -> None:
    """Only in a working directory do ignore files of git count."""
    root = grow({"train.py": "x"})
    with tree_of("code", base=root.parent) as tree:
        assert (tree.path, tree.own) == (root, True)
    with tree_of(str(root / "train.py")) as tree:
        assert (tree.path, tree.own) == (root / "train.py", False)
    with pytest.raises(NotFound, match="does not exist"), tree_of("nothing", base=root):
        pass


def test_an_archive_is_unpacked_for_a_while(grow: Grow, tmp_path: Path) -> None:
    """With the id of what was packed, and nothing is left behind."""
    root, scratch = grow({"sub/train.py": "x", "other": ""}), tmp_path / "scratch"
    scratch.mkdir()
    snapshot = take(root)
    snapshot.pack(root.parent / "code.tar.gz")
    with tree_of("code.tar.gz", base=root.parent, scratch=scratch) as tree:
        assert take(tree.path).id == snapshot.id and tree.path.is_relative_to(scratch)
    with tree_of("code.tar.gz#subdirectory=sub", base=root.parent, scratch=scratch) as tree:
        assert [entry.path for entry in take(tree.path).entries] == ["train.py"]
    with pytest.raises(RuntimeError), tree_of("code.tar.gz", base=root.parent, scratch=scratch):
        raise RuntimeError
    for wrong in (
        "code.tar.gz#subdirectory=nothing",
        "code.tar.gz#subdirectory=../..",
        "code.tar.gz#subdirectory=other",
    ):
        with pytest.raises(NotFound, match="has no folder"), tree_of(wrong, base=root.parent, scratch=scratch):
            pass
    assert list(scratch.iterdir()) == []


def test_a_store_is_asked_through_fetch(grow: Grow, tmp_path: Path) -> None:
    """A script or an archive; the exec bit follows from the first line."""
    asked: list[str] = []

    def fetch(location: str, target: Path) -> None:
        asked.append(location)
        if location.endswith(".tar.gz"):
            with tarfile.open(target, "w:gz") as packed:
                packed.add(grow({"train.py": "x"}), ".")
        else:
            target.write_text("#!/bin/sh\n")

    with tree_of("s3://bucket/dir/main.sh", fetch=fetch, scratch=tmp_path) as tree:
        [entry] = take(tree.path).entries
        assert (entry.path, entry.mode, tree.origin) == ("main.sh", "755", "s3://bucket/dir/main.sh")
    with tree_of("az://account/c/dir.tar.gz", fetch=fetch, scratch=tmp_path) as tree:
        assert [entry.path for entry in take(tree.path).entries] == ["train.py"]
    assert asked == ["s3://bucket/dir/main.sh", "az://account/c/dir.tar.gz"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://bucket/main.py", "is not a known source of code"),
        ("https://host.example/folder/", "does not name a file"),
        ("git+ssh://git.example/x@main", r"git\+https://"),
        ("git+http://git.example/x@main", r"git\+https://"),
        ("git+https://me:secret@git.example/x@main", "contains a name or password"),
        ("https://token@host.example/x.py", "contains a name or password"),
        ("git+file:///x@--upload-pack=touch", "is not a git ref"),
        ("git+file:///x@", "is not a git ref"),
    ],
)
def test_wrong_words(text: str, words: str) -> None:
    """Said before anything is fetched, and without repeating a password."""
    with pytest.raises(UsageError, match=words) as caught, tree_of(text):
        pass
    assert "secret" not in str(caught.value) and "token" not in str(caught.value)


def test_git_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own sentence."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"), tree_of("git+file:///x@main", scratch=tmp_path):
        pass
    assert os.listdir(tmp_path) == []  # noqa: PTH208
