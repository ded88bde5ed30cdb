"""What zip would leave out is left out by the patterns of an ignore file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from petctl.compat.act.config.zip_rules import read_zip_options

PATHS = (
    "a.pyc",
    "src/a.pyc",
    "src/CMC/x.py",
    "lib/mysrc/CMC/y.py",
    "src/CMCx/z.py",
    "data/x",
    "database.txt",
    "deep/data/x",
)


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["-x", r"\*src/CMC/\*"], {"src/CMC/x.py", "lib/mysrc/CMC/y.py"}),
        (["-x", "*.pyc"], {"a.pyc", "src/a.pyc"}),
        (["-x*.pyc", "-9"], {"a.pyc", "src/a.pyc"}),
        (["--exclude=*.pyc"], {"a.pyc", "src/a.pyc"}),
        (["-x", "data*"], {"data/x", "database.txt"}),
        (["-x", "data/*", "*.pyc", "@", "-q"], {"data/x", "a.pyc", "src/a.pyc"}),
        (["-x", "*/data/*"], {"deep/data/x"}),
        (["-x", "src*.py"], {"src/CMC/x.py", "src/CMCx/z.py"}),
        (["-x", "./src/CMC/x.py"], {"src/CMC/x.py"}),
        (["-x", "**/CMC/**"], {"src/CMC/x.py", "lib/mysrc/CMC/y.py"}),
    ],
)
def test_as_git_reads_it(words: list[str], left_out: set[str], tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("\n".join(read_zip_options(words).exclude))
    said = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--stdin", "--no-index"],
        input="\n".join(PATHS), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert set(said.stdout.split()) == left_out


def test_other_words_mean_nothing() -> None:
    assert read_zip_options(["-9", "-y", "-x", "a"]).idle == ["-9", "-y"]
