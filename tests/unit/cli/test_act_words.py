"""The words of `act`: flags on both sides of a verb, a command's own words left alone, help at once and complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.compat.act.cli.flag_hints import misplaced
from petctl.compat.act.cli.flags import FLAGS, IDLE, Flags, root, verb
from petctl.compat.act.cli.verbs import commands, overview

PAGES = Path(__file__).parents[3] / "docs"
DOCUMENTATION = PAGES / "act.md"
VERBS = (
    "init initi initc initic submit s query q qf qq qr f failed abort a resubmit ls u upload d download rm url summary "
    "blame parse ssh local completion"
)
VALUES = {
    "num_gpu": "8",
    "cluster": "eu",
    "from_cluster": "we3v32",
    "resubmit_to": "c2",
    "compile_args": "fast",
    "max": "3",
    "output": "json",
    "param": "{a: 1}",
    "inject_collection": "phillyjob",
}


class Front:
    """`a`, whose verbs `submit` and `query` only note what they were told."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture, self.said, self.told = capture, Flags(), ""
        self.words: tuple[str, ...] = ()

    def __call__(self, *words: str, code: int = 0) -> tuple[Flags, tuple[str, ...]]:
        front = root("a")
        front.get_command = self._command  # type: ignore[assignment, method-assign]
        self.capture.readouterr()
        ended = run_to_exit_code(words, front, "a")
        self.told = self.capture.readouterr().err
        assert ended == code, self.told
        return self.said, self.words

    def _command(self, ctx: click.Context, name: str) -> click.Command:
        @verb(name, heeds=("num_gpu",), command_behind=name == "submit")
        @click.argument("words", nargs=-1, type=click.UNPROCESSED)
        def note(said: Flags, words: tuple[str, ...]) -> None:
            self.said, self.words = said, words

        assert isinstance(note, click.Command)
        return note


@pytest.fixture
def a(capsys: pytest.CaptureFixture[str]) -> Front:
    return Front(capsys)


def spelt(flag: Any) -> list[list[str]]:
    return [[word, *([VALUES[flag.name]] if flag.value else [])] for word in flag.words]


@pytest.mark.parametrize("flag", [*FLAGS, *IDLE], ids=lambda flag: flag.words[0])
def test_a_flag_means_the_same_before_a_verb_and_behind_it(a: Front, flag: Any) -> None:
    for words in spelt(flag):
        before = a(*words, "submit", "python", "train.py")
        assert before == a("submit", *words, "python", "train.py")
        assert before[1] == ("python", "train.py")
        if flag in FLAGS:
            assert str(getattr(before[0], flag.name)) == (words[1] if flag.value else "True")
            assert before[0]._replace(**{flag.name: Flags._field_defaults[flag.name]}) == Flags()
        else:
            assert before[0] == Flags()
            assert f"{flag.words[0]} has no effect" in a.told


def test_all_from_the_first_word_of_a_command_on_is_its_own(a: Front) -> None:
    said, words = a(
        "submit", "-n", "4", "python", "train.py", "-n", "8", "-c", "x", "--max", "-no-wl", "-h", "--", "-o"
    )
    assert said == Flags(num_gpu=4)
    assert words == ("python", "train.py", "-n", "8", "-c", "x", "--max", "-no-wl", "-h", "--", "-o")
    assert a("submit", "--", "-strange", "name")[1] == ("-strange", "name")
    assert a("submit", "python -c 'print(1)' | tee log")[1] == ("python -c 'print(1)' | tee log",)
    assert a("submit", "x", "--ids", "1", "2", "")[1] == ("x", "--ids", "1", "2", "")


def test_what_stands_behind_the_verb_wins(a: Front) -> None:
    assert a("-n", "4", "-c", "eu", "submit", "-n", "8", "x")[0] == Flags(num_gpu=8, cluster="eu")
    assert a("q", "60ce2fc7", "-no-wl")[0] == Flags(without_log=True)
    assert a("-n0", "submit", "x")[0].num_gpu == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "many", "submit", "x"], "many"),
        (["submit", "--nosuch", "x"], "no such option"),
        (["-n", "-1", "submit", "x"], "-1"),
    ],
)
def test_wrong_flags_are_told(a: Front, words: Sequence[str], told: str) -> None:
    a(*words, code=2)
    assert told in a.told.lower()


def test_a_verb_that_does_not_exist_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(["sumbit", "x"], root("a"), "a") == 2
    assert "Did you mean submit?" in capsys.readouterr().err


def hints(line: str, said: Flags = Flags(), known: str = "eu") -> list[str]:  # noqa: B008  a value
    return misplaced("a", "submit", line.split(), said, known.split().__contains__)


def test_a_misplaced_flag_is_pointed_out_with_the_line_that_was_meant() -> None:
    assert hints("python train.py --data voc20 -n 8") == [
        "-n 8 is python's; for 8 GPUs write: a -n 8 submit python train.py --data voc20"
    ]
    assert hints("python train.py -c eu") == [
        "-c eu is python's; for the cluster eu write: a -c eu submit python train.py"
    ]
    assert "a -single submit ./train" in hints("./train -single")[0]
    assert "a -hold submit ./train" in hints("./train -hold")[0]
    assert "a --num_gpu 4 submit ./train x" in hints("./train --num_gpu 4 x")[0]


@pytest.mark.parametrize(
    "line",
    [
        "python train.py -n",
        "python train.py -n many",
        "python -c pass",
        "bash -c true",
        "mpirun -n 4 ./train",
        "head -n 5 log",
        "/usr/bin/tail -n 5 log",
        "",
    ],
)
def test_flags_that_are_a_commands_own_are_left_alone(line: str) -> None:
    assert hints(line) == []


def test_no_hint_where_the_flag_was_given() -> None:
    assert hints("python train.py -n 8", Flags(num_gpu=4)) == []
    assert hints("python train.py -n 8", Flags(num_gpu=0)) == []


# -- help --------------------------------------------------------------------------------------------------------------


def all_commands() -> dict[str, click.Command]:
    front = root("act")
    with click.Context(front) as ctx:
        return {name: front.get_command(ctx, name) for name in front.list_commands(ctx)}  # type: ignore[misc]


def test_every_verb_is_there() -> None:
    assert set(commands()) == set(VERBS.split())
    assert all(isinstance(command, click.Command) for command in all_commands().values())


def test_the_first_page_names_every_verb_and_fits_a_terminal() -> None:
    page = overview("act")
    words = set(page.replace(",", " ").split())
    assert set(commands()) <= words
    assert all(len(line) <= 90 for line in page.splitlines())


def test_every_page_of_help_says_what_it_does_and_has_examples() -> None:
    for name, command in all_commands().items():
        assert command.help, name
        assert "Examples:" in (command.epilog or ""), name


def test_the_documentation_names_every_verb_and_flag() -> None:
    text = DOCUMENTATION.read_text()
    for name in commands():
        assert f"`{name}" in text or f" {name}" in text, name
    for flag in (*FLAGS, *IDLE):
        assert all(f"`{word}" in text for word in flag.words), flag.words


def shown_lines() -> list[str]:
    """Commands in the documentation and in every verb's own examples, without what is said behind them."""
    pages = [(PAGES / name).read_text().splitlines() for name in ("act.md", "act-fields.md", "migrating.md")]
    own = [(command.epilog or "").splitlines() for command in all_commands().values()]
    blocks = [line.strip() for lines in (*pages, *own) for line in lines if re.match(r"\s+(a|act) ", line)]
    said = [re.split(r"\s{2,}", line)[0] for line in blocks]
    quoted = [text for page in pages for line in page for text in re.findall(r"`((?:a|act) [^`|]*)`", line)]
    return sorted({line for line in (*said, *quoted) if "..." not in line and ";" not in line})


@pytest.mark.parametrize("line", shown_lines())
def test_every_command_that_is_shown_can_be_typed(line: str) -> None:
    program, *typed = shlex.split(line)
    front = root(program)
    with front.make_context(program, typed) as ctx:
        _, command, rest = front.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert command is not None
        if rest:  # else a verb named in passing
            command.make_context(program, rest, parent=ctx)  # raises where a word is none of its own


def test_help_imports_next_to_nothing() -> None:
    code = "import sys\ntry:\n    from petctl.compat.act.cli import main\n    main()\nfinally:\n"
    code += "    print('\\n'.join(sys.modules), file=sys.stderr)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=environment)
    assert done.stdout == overview("act") + "\n"
    assert not set(done.stderr.split()) & {"click", "rich", "yaml", "msgspec", "asyncio", "petctl.compat.act.client"}


def test_a_shell_completes_verbs_flags_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "aux_data/aml").mkdir(parents=True)
    (tmp_path / "aux_data/aml/eu.yaml").touch()
    shell = ShellComplete(root("a"), {}, "a", "_A_COMPLETE")
    assert {item.value for item in shell.get_completions([], "init")} == {"init", "initi", "initc", "initic"}
    assert [item.value for item in shell.get_completions(["-c"], "e")] == ["eu"]
    assert [item.value for item in shell.get_completions(["-n", "8", "submit", "-c"], "l")] == ["local"]
    assert [item.value for item in shell.get_completions(["submit"], "--num")] == ["--num_gpu"]
