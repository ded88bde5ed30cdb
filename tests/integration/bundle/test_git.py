"""Code from a git ref: exactly that commit, and nothing of the repository is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from petctl.bundle import take
from petctl.bundle.sources import tree_of
from petctl.errors import NotFound, Unreachable
from tests.integration.bundle.conftest import Git, Web


@pytest.fixture
def repository(tmp_path: Path, git: Git) -> Path:
    """Two commits on main, a tag on the first, a branch with a slash in its name."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "train.py").write_text("first\n")
    (folder / "src").mkdir()
    (folder / "src/run.sh").write_text("#!/bin/sh\n")
    (folder / "src/run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("tracked.log\n")
    (folder / "tracked.log").write_text("tracked all the same\n")
    git(folder, "add", "--force", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    git(folder, "branch", "feature/x")
    (folder / "train.py").write_text("second\n")
    git(folder, "commit", "--quiet", "-a", "-m", "second")
    (folder / "train.py").write_text("not committed\n")
    return folder


def paths(path: Path) -> list[str]:
    return [entry.path for entry in take(path, gitignore=False).entries]


@pytest.mark.parametrize("transport", ["file", "http"])
@pytest.mark.parametrize("ref", ["v1", "feature/x", "main", "", "HASH"])
def test_refs(repository: Path, git: Git, web: Web, transport: str, ref: str, tmp_path: Path) -> None:
    """A tag, a branch, nothing or a full hash; the answer names the commit."""
    first = git(repository, "rev-parse", "v1^{commit}")
    wanted = git(repository, "rev-parse", "HEAD" if ref in ("main", "") else "v1^{commit}")
    url = f"file://{repository}" if transport == "file" else f"{web.address}/repository/.git"
    ref = first if ref == "HASH" else ref
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with tree_of(f"git+{url}@{ref}" if ref else f"git+{url}", scratch=scratch) as tree:
        assert tree.origin == f"git+{url}@{wanted}" and not tree.own
        assert (tree.path / "train.py").read_text() == ("first\n" if wanted == first else "second\n")
        assert paths(tree.path) == [".gitignore", "src/run.sh", "tracked.log", "train.py"]
        assert os.access(tree.path / "src/run.sh", os.X_OK)
    assert list(scratch.iterdir()) == []
    assert (repository / "train.py").read_text() == "not committed\n"


def test_the_pinned_origin_gives_the_same_again(repository: Path, git: Git) -> None:
    """Also after the branch has moved on."""
    with tree_of(f"git+file://{repository}@main#subdirectory=src") as tree:
        pinned, first = tree.origin, take(tree.path).id
        assert paths(tree.path) == ["run.sh"]
    (repository / "src/run.sh").write_text("changed\n")
    git(repository, "commit", "--quiet", "-a", "-m", "third")
    with tree_of(pinned) as tree:
        assert take(tree.path).id == first and tree.origin == pinned


@pytest.mark.parametrize("transport", ["file", "http"])
def test_errors(repository: Path, web: Web, tmp_path: Path, transport: str) -> None:
    """No such ref, no such commit, no such repository, nobody there: each its own sentence."""
    base = f"file://{tmp_path}" if transport == "file" else web.address
    url = f"git+{base}/repository/.git"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for text, words in (
        (f"{url}@nothing", "has no branch or tag 'nothing'"),
        (f"{url}@{'a' * 40}", "has no commit 'a{40}'"),
        (f"{url}@{'a' * 8}", "give the full hash"),
        (f"git+{base}/missing@main", "there is no git repository at"),
        (f"{url}@main#subdirectory=nothing", "has no folder 'nothing'"),
    ):
        with pytest.raises(NotFound, match=words), tree_of(text, scratch=scratch):
            pass
    with pytest.raises(Unreachable, match="does not answer"), tree_of("git+http://127.0.0.1:9/x@main", scratch=scratch):
        pass
    assert list(scratch.iterdir()) == []


def test_nothing_of_the_repository_or_the_user_is_run(
    repository: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, templates, LFS, line endings, variables of a git that runs around us."""
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n*.py filter=other\n")
    (repository / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    git(repository, "add", ".gitattributes", "weights.bin")
    git(repository, "commit", "--quiet", "-m", "with LFS")
    ran = tmp_path / "ran"
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    for key, value in {
        "init.templateDir": str(tmp_path / "template"),
        "core.hooksPath": str(hooks),
        "core.autocrlf": "true",
        "filter.lfs.smudge": f"touch {ran}",
        "filter.other.smudge": f"touch {ran}",
        "filter.lfs.required": "true",
    }.items():
        git(repository, "config", "--global", key, value)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    with tree_of(f"git+file://{repository}@main") as tree:
        assert (tree.path / "train.py").read_bytes() == b"second\n"
        assert (tree.path / "weights.bin").read_text().startswith("version https://git-lfs")
    assert not ran.exists() and not (tmp_path / "index").exists()


def test_submodules_are_named(repository: Path, git: Git, tmp_path: Path) -> None:
    """They are not in it, and the user hears so."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    git(inner, "commit", "--quiet", "--allow-empty", "-m", "x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "third party")
    git(repository, "commit", "--quiet", "-m", "with a submodule")
    with tree_of(f"git+file://{repository}@main") as tree:
        assert tree.notes == ("the submodule third party is not in the snapshot",)
