"""${NAME} and --set: values only, every one filled, every one used."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import SpecError
from petctl.job.file.read import read_job
from petctl.job.spec import Job, Size


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, **sets: str) -> Job:
    Path("job.yaml").write_text(text)
    return read_job("job.yaml", sets)


def problems(text: str, **sets: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text, **sets)
    return str(caught.value).splitlines()


def test_any_field_can_be_filled() -> None:
    text = "script: ${S}.py\nargs: [--lr, '${LR}', '${LR}/${S}']\nnodes: ${N}\nenv: {A: 'x${LR}y'}\n"
    job = read(text, S="train", LR="0.10", N="1:3")
    assert job.command.words == ["train.py", "--lr", "0.10", "0.10/train"]
    assert job.nodes == Size(1, 3, 3)
    assert job.env == {"A": "x0.10y"}


def test_a_value_cannot_add_structure_or_words() -> None:
    evil = "a b\nrestarts: 99\n- 'x"
    job = read("program: run ${X}\nargs: --name ${X} 'q ${X}'\nenv: {A: '${X}'}\n", X=evil)
    assert job.command.words == ["run", evil, "--name", evil, f"q {evil}"]
    assert (job.env, job.restarts) == ({"A": evil}, 3)


def test_values_are_not_filled_again() -> None:
    assert read("script: a.py\nargs: ['${A}']\nenv: {B: '${B}'}\n", A="${B}", B="$${A}").command.words[1] == "${B}"


def test_escaped() -> None:
    job = read("script: a.py\nargs: ['$${X}', '$${X}${Y}', '$X', '$$', '${', '$${not a name}']\n", Y="1")
    assert job.command.words[1:] == ["${X}", "${X}1", "$X", "$$", "${", "${not a name}"]


def test_shell_text_keeps_its_own_variables() -> None:
    job = read("shell: echo ${HOME} ${X} ${Y:-3} $${Y}\nprepare: cd ${TMP} && ${X}\n", X="1")
    assert job.command.words == ["echo ${HOME} 1 ${Y:-3} ${Y}"]
    assert job.prepare == "cd ${TMP} && 1"


def test_all_that_is_not_filled_is_told_at_once() -> None:
    assert problems("script: a.py\nargs: ['${A}', '${B}${C}']\nnodes: ${N}\n", B="1") == [
        "job.yaml:2:8: args[0]: ${A} is not filled; give --set A=value, or write $${A} for this very text",
        "job.yaml:2:16: args[1]: ${C} is not filled; give --set C=value, or write $${C} for this very text",
        "job.yaml:3:8: nodes: ${N} is not filled; give --set N=value, or write $${N} for this very text",
    ]


def test_something_else_in_braces() -> None:
    (found,) = problems("script: a.py\nenv: {A: '${B:-1}'}\n")
    assert found.startswith("job.yaml:2:10: env.A: ${B:-1} is not of the form ${NAME}; ")
    assert found.endswith("or write $${B:-1} for this very text")


def test_a_filled_value_is_checked_where_it_stands() -> None:
    assert problems("script: a.py\nnodes: ${N}\n", N="0") == [
        "job.yaml:2:8: nodes: the minimum number of nodes must be 1 or more, got 0"
    ]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("args: ['${LR}']", "; did you mean 'LR'?"),
        ("args: ['${Epochs}']", "; it has Epochs"),
        ("args: [x]", ""),
        ("args: ['$${RL}']", ""),
        ("prepare: ${LR}", "; did you mean 'LR'?"),
    ],
)
def test_a_set_that_nothing_uses(text: str, end: str) -> None:
    found = problems(f"script: a.py\n{text}\n", LRR="1")
    assert found[0] == f"job.yaml: --set LRR: the file has no ${{LRR}}{end}"


def test_names_are_not_filled() -> None:
    (found, unused) = sorted(problems("script: a.py\nenv: {'${X}': 1}\n", X="A"), reverse=True)
    assert found.startswith("job.yaml:2:7: env.${X}: a name in the environment")
    assert "--set X" in unused


def test_an_open_quote_is_told_in_words() -> None:
    (found,) = problems("program: a '${X}\n")
    assert "program: cannot be split into words" in found
