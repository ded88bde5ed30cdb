"""Ignore rules: git itself is the judge."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petctl.bundle.ignore import Rules, Translations, is_ignored, translate
from petctl.bundle.tree import walk
from tests.unit.bundle.conftest import Grow

NAMES = ("a", "b", "ab", "a.py", "b.log", "keep", "#a", "!a", "a b")
PIECES = ["a", "b", "ab", "*", "**", "*.py", "a*", "?", "[ab]", "[!a]", "a.py", "keep", "b.log", "\\#a", "\\!a", "a\\*"]


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """A line of an ignore file, likely to hit."""
    inner = "/".join(draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3)))
    return (
        draw(st.sampled_from(("", "", "!")))
        + draw(st.sampled_from(("", "", "/")))
        + inner
        + draw(st.sampled_from(("", "", "/", " ", "\r")))
    )


trees = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12)
ignore_files = st.lists(patterns(), max_size=6).map(lambda lines: "".join(f"{line}\n" for line in lines))


def git(root: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null")
    argv = ("git", "-C", str(root), *words)
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout


def kept(root: Path, **options: object) -> list[str]:
    found = walk(root, **options)  # type: ignore[arg-type]
    return sorted(path for path, _ in found.files)


def kept_by_git(root: Path) -> list[str]:
    return sorted(filter(None, git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0")))


def plant(root: Path, paths: list[str]) -> None:
    for path in paths:
        file = root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # the same name was drawn as a folder


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(paths=trees, top=ignore_files, nested=ignore_files, exclude=ignore_files)
def test_keeps_what_git_keeps(paths: list[str], top: str, nested: str, exclude: str) -> None:
    """Root and nested files, and info/exclude: the same files as `git ls-files --others --exclude-standard`."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        git(root, "init", "--quiet", "--template=")
        plant(root, paths)
        (root / ".gitignore").write_text(top)
        (root / ".git/info").mkdir()
        (root / ".git/info/exclude").write_text(exclude)
        if (root / "a").is_dir():
            (root / "a/.gitignore").write_text(nested)
        assert kept(root) == kept_by_git(root)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(paths=trees, top=ignore_files, exclude=ignore_files)
def test_a_folder_of_a_repository_follows_the_rules_above_it(paths: list[str], top: str, exclude: str) -> None:
    """As git does when it is asked about that folder, unless the folder itself is ignored."""
    with tempfile.TemporaryDirectory() as folder:
        top_folder = Path(folder).resolve()
        root = top_folder / "a" / "b"
        root.mkdir(parents=True)
        git(top_folder, "init", "--quiet", "--template=")
        plant(root, paths)
        (root / "always").touch()
        (top_folder / ".gitignore").write_text(top)
        (top_folder / ".git/info").mkdir()
        (top_folder / ".git/info/exclude").write_text(exclude)
        ignored = git(top_folder, "status", "--porcelain", "--ignored=matching", "--", "a")
        if ignored.startswith(("!! a/\n", "!! a/b/\n")):
            expected = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        else:
            expected = kept_by_git(root)
        assert kept(root) == expected


@pytest.mark.parametrize(
    ("text", "ignored", "kept_paths"),
    [
        ("a/**\n!a/keep\n", ["a/x", "a/b/"], ["a/", "a/keep"]),
        ("a/**/\n", ["a/b/"], ["a/", "a/x"]),
        ("*\n!*/\n!*.py\n", ["x", "a/x"], ["a/", "a/b.py", "b.py"]),
        ("\ufeffdata/\r\n# comment\n\nlogs\n", ["data/", "logs", "x/logs/"], ["data", "# comment"]),
        ("foo\\ \nbar  \n", ["foo ", "bar"], ["foo"]),
        ("broken\\\nx\n", ["x"], ["broken", "broken\\"]),
    ],
)
def test_patterns(text: str, ignored: list[str], kept_paths: list[str]) -> None:
    """The cases where translations tend to differ from git."""
    rules = (Rules(text, Translations()),)
    name_of = lambda path: path.rstrip("/").rpartition("/")[2] + "/" * path.endswith("/")  # noqa: E731
    assert [path for path in ignored + kept_paths if is_ignored(rules, path, name_of(path))] == ignored


def test_own_file_replaces_git_files(grow: Grow) -> None:
    """With .petctlignore at the root nothing else counts."""
    root = grow(
        {".petctlignore": "data\n", ".gitignore": "x\n", "x": "", "data/y": "", "sub/.gitignore": "z\n", "sub/z": ""}
    )
    assert kept(root) == [".gitignore", ".petctlignore", "sub/.gitignore", "sub/z", "x"]


def test_trees_of_commits_are_taken_whole(grow: Grow) -> None:
    """A tracked file may match .gitignore; .petctlignore still counts."""
    root = grow({".gitignore": "x\n", "x": ""})
    assert kept(root, gitignore=False) == [".gitignore", "x"]
    (root / ".petctlignore").write_text("x\n")
    assert kept(root, gitignore=False) == [".gitignore", ".petctlignore"]


def test_junk_is_never_code(grow: Grow) -> None:
    """Caches, repositories and virtual environments, even if a rule brings them back."""
    junk = [
        ".git/HEAD",
        "a/.git/HEAD",
        "__pycache__/x.py",
        "m.pyc",
        ".venv/x",
        ".venv-torch/x",
        ".mypy_cache/x",
        ".petctl/x",
        "env/pyvenv.cfg",
    ]
    root = grow({".petctlignore": "!*\n", "a/x.py": "", ".venvrc": "", **dict.fromkeys(junk, "")})
    assert kept(root) == [".petctlignore", ".venvrc", "a/x.py"]


def test_ignored_paths_are_told_topmost(grow: Grow) -> None:
    """So that they can be linked instead; never junk, never what the caller excluded."""
    files = [
        "data/a/b",
        "src/out/x",
        "src/m.py",
        "__pycache__/x.pyc",
        "mapped/in/y",
        "env/pyvenv.cfg",
        "env/bin/python",
    ]
    root = grow({".gitignore": "data/\nout\n__pycache__\n", **dict.fromkeys(files, "")})
    found = walk(root, exclude=["./mapped/in/"])
    assert found.ignored == ["data", "env", "src/out"]
    assert sorted(path for path, _ in found.files) == [".gitignore", "src/m.py"]


def test_ignored_folders_are_not_entered(grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder may hold millions of files."""
    root = grow({".gitignore": "data\n", "data/x/y": "", "src/m.py": ""})
    entered: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(str(path)) or scandir(path))  # type: ignore[func-returns-value]
    walk(root)
    assert entered == [f"{root}/", f"{root}/src/"]


def test_worktrees_use_the_exclude_file_of_their_repository(tmp_path: Path) -> None:
    """There .git is a file that leads to it."""
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "--quiet", "--template=")
    git(main, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "--quiet", str(tree))
    (main / ".git/info").mkdir(exist_ok=True)
    (main / ".git/info/exclude").write_text("secret\n")
    plant(tree, ["secret", "x"])
    assert kept(tree.resolve()) == kept_by_git(tree) == ["x"]


def test_remembered_translations_need_no_pathspec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading it would cost more than the rest of a snapshot."""
    translations = Translations({"data\n": translate("data\n"), "": []})
    monkeypatch.setitem(sys.modules, "pathspec.patterns.gitignore.spec", None)
    assert Rules("data\n", translations).verdict("data/", "data/") is True
    assert Rules("", translations).verdict("data/", "data/") is None
