"""What the workers are: a Python script, a module, any program, or a shell line; always as a list of words.

`classify_command` is the command line's rule for its first word, and the same rule holds for `Job(command=[...])`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, Problems, shown, wrong

# The same words as in the agent's task, which this side does not import.
KINDS = ("script", "module", "program", "shell")
MISSING = "no command: give one of script, module, program or shell"

_JOB_FILES = (".yaml", ".yml", ".json")


class Command(msgspec.Struct, frozen=True):
    """A kind and its words: a script's path or a module's name and arguments, a program's argv, or one shell line."""

    kind: str
    words: list[str]

    def __post_init__(self) -> None:
        values.one_of(*KINDS)(self.kind)
        words = [self.words] if self.kind == "shell" and isinstance(self.words, str) else self.words
        msgspec.structs.force_setattr(self, "words", values.words(words))
        if not self.words or not self.words[0].strip():
            raise wrong(f"the {self.kind} is empty")
        if self.kind == "shell" and len(self.words) > 1:
            raise wrong(f"a shell line must be one string, got {len(self.words)} words; put it in quotes")

    def __str__(self) -> str:
        if self.kind == "shell":
            return self.words[0]
        return ("-m " if self.kind == "module" else "") + shlex.join(self.words)

    def extended(self, words: Sequence[str]) -> Command:
        """The same command with further arguments."""
        if words and self.kind == "shell":
            raise wrong(f"a shell line takes no arguments, got {shown(words[0])}; write them into the line")
        return Command(self.kind, [*self.words, *words])


class JobFile(msgspec.Struct, frozen=True):
    """The first word named a job file; the words after it are further arguments of its command."""

    path: str
    words: list[str] = []


def classify_command(words: Sequence[str], module: bool = False, shell: bool = False) -> Command | JobFile:
    """The command line's rule: .yaml, .yml, .json is a job file, .py a script, anything else a program."""
    rest = list(words[1:] if words and words[0] == "--" else words)
    if module and shell:
        raise wrong("give either a module or a shell line, not both")
    if not rest:
        raise wrong("no command: name a script, a program or a job file")
    if module or shell:
        return Command("module" if module else "shell", rest)
    first = rest[0].lower()
    if first.endswith(_JOB_FILES):
        return JobFile(rest[0], rest[1:])
    return Command("script" if first.endswith(".py") else "program", rest)


def command_from(value: object) -> Command:
    """A command from a Command, from the fields of a job file, or from words by the command line's rule."""
    if isinstance(value, Command):
        return value
    if value is None:
        raise wrong(MISSING)
    if isinstance(value, Mapping):
        return command_from_forms(value)
    try:
        command = classify_command(values.words(value))
    except FieldError as error:
        raise FieldError(problem.under("command") for problem in error.problems) from None
    if isinstance(command, JobFile):
        raise wrong(f"{shown(command.path)} is a job file; read it with petctl.job.file.read.read_job", "command")
    return command


def command_from_forms(forms: Mapping[str, object]) -> Command:
    """A command from the fields script, module, program, shell and args, of which exactly one but args is given."""
    given = [kind for kind in KINDS if forms.get(kind) is not None]
    problems = Problems([] if given else [Problem((), MISSING)])
    words: list[str] = []
    problems += [Problem((kind,), f"a second command besides {given[0]!r}; keep one", True) for kind in given[1:]]
    for kind in given[:1]:
        with problems.at(kind):
            form = forms[kind]
            words = Command(kind, values.words(form) if kind == "program" else [values.text(form)]).words
    if forms.get("args") is not None:
        with problems.at("args"):
            arguments = values.words(forms["args"])
            if arguments and given == ["shell"]:
                raise wrong("a shell line takes no arguments; write them into the line")
            words += arguments
    problems.check()
    return Command(given[0], words)
