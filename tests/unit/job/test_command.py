"""The command line's rule for its first word, and that words survive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.errors import SpecError
from petctl.job.spec import Command, JobFile, classify_command


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["train.py", "--lr", "0.1"], "script"),
        (["./dir with blank/train.PY"], "script"),
        (["nvidia-smi"], "program"),
        (["python", "train.py"], "program"),
        (["yaml"], "program"),
    ],
)
def test_first_word(words: list[str], kind: str) -> None:
    assert classify_command(words) == Command(kind, words)


@pytest.mark.parametrize("path", ["job.yaml", "job.yml", "a/b.json", "JOB.YAML"])
def test_job_file_keeps_the_words_after_it(path: str) -> None:
    assert classify_command([path, "--lr", "0.1"]) == JobFile(path, ["--lr", "0.1"])


def test_only_the_leading_separator_is_dropped() -> None:
    assert classify_command(["--", "nvidia-smi", "--", "-L"]) == Command("program", ["nvidia-smi", "--", "-L"])


def test_module_and_shell() -> None:
    words = ["package.train", "job.yaml"]
    assert classify_command(words, module=True) == Command("module", ["package.train", "job.yaml"])
    assert classify_command(["a | b"], shell=True) == Command("shell", ["a | b"])


@pytest.mark.parametrize(
    ("words", "options", "sentence"),
    [
        ([], {}, "name a script, a program or a job file"),
        (["--"], {}, "name a script, a program or a job file"),
        ([""], {}, "the program is empty"),
        (["a", "b"], {"shell": True}, "put it in quotes"),
        (["a"], {"shell": True, "module": True}, "not both"),
        (["a\0b"], {}, "NUL"),
    ],
)
def test_refused(words: list[str], options: dict[str, bool], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        classify_command(words, **options)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_the_words_survive(words: list[str]) -> None:
    given_words = ["program", *words]
    command = classify_command(given_words)
    assert isinstance(command, Command)
    assert command.words == given_words
    assert command.words is not given_words


def test_bytes_of_another_encoding_are_refused_before_anything_starts() -> None:
    with pytest.raises(SpecError, match="not UTF-8"):
        Command("program", ["ls", "caf\udce9"])


def test_extended() -> None:
    command = Command("script", ["a.py"])
    assert command.extended(["--x", "1"]) == Command("script", ["a.py", "--x", "1"])
    assert command.words == ["a.py"]
    with pytest.raises(SpecError, match="a shell line takes no arguments"):
        Command("shell", ["a"]).extended(["b"])


def test_as_text() -> None:
    assert str(Command("script", ["a b.py", "$x"])) == "'a b.py' '$x'"
    assert str(Command("module", ["a.b", "1"])) == "-m a.b 1"
    assert str(Command("shell", ["a | b"])) == "a | b"
