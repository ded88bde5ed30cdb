"""petctl's own options behind a job file are petctl's; behind a script they are the script's, and a hint says so.

    petctl run job.yaml --set LR=0.1 -n 4 -- -v        the same as: petctl run --set LR=0.1 -n 4 job.yaml -- -v

Behind a job file they end at the first word that is none of them, or at `--`; from there on all is for the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

_JOB_FILES = (".yaml", ".yml", ".json")


def hint_at_options_behind(words: Sequence[str]) -> None:
    """Tells about petctl's options among a script's own words, where the script does not seem to know them."""
    context = click.get_current_context(silent=True)
    if context is None or len(words) < 2 or words[1] == "--":  # which says that what follows is the script's
        return
    script, known = words[0], takes_value(context.command, context)
    own = dict.fromkeys(word.partition("=")[0] for word in words[1:] if word.startswith("-"))
    for name in own:
        if name in known and not _knows(Path(script), name):
            verb = context.command_path
            told = f"{name} after {script} goes to the script; for petctl put it before: {verb} {name} ..."
            click.echo(f"petctl: {told} {script}", err=True)


def takes_value(command: click.Command, ctx: click.Context) -> dict[str, bool]:
    """Every option of a verb, and whether a value follows it."""
    options = [option for option in command.get_params(ctx) if isinstance(option, click.Option)]
    return {name: not option.is_flag for option in options for name in (*option.opts, *option.secondary_opts)}


def options_first(args: list[str], known: Mapping[str, bool]) -> list[str]:
    """The words with petctl's options behind a job file moved before it."""
    place = _end_of_options(args, 0, known)
    if place == len(args) or args[place].startswith("-") or {"-m", "--module"} & set(args[:place]):
        return args
    file = _job_file(args, place)
    if file is None:
        return args
    end = _end_of_options(args, file + 1, known)
    return [*args[:place], *args[file + 1 : end], *args[place : file + 1], *args[end:]]


def _job_file(args: Sequence[str], place: int) -> int | None:
    """Where the job file is: the first word, or the one behind the code that it is to run."""
    if args[place].lower().endswith(_JOB_FILES):
        return place
    from petctl.cli.job_options import split_code
    from petctl.errors import UsageError

    try:
        code, rest = split_code(args[place:])
    except UsageError:  # told when the words are read
        return None
    return len(args) - len(rest) if code and rest[0].lower().endswith(_JOB_FILES) else None


def _end_of_options(args: Sequence[str], start: int, known: Mapping[str, bool]) -> int:
    """The first word that is neither one of these options nor the value of one."""
    place = start
    while place < len(args):
        words = _option_words(args[place], known)
        if not words:
            break
        place += words
    return min(place, len(args))


def _option_words(word: str, known: Mapping[str, bool]) -> int:
    """How many words an option takes; none where it is not known."""
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        return 0 if name not in known else 2 if known[name] and not equals else 1
    letters = word[1:] if word.startswith("-") else ""
    for position, letter in enumerate(letters):
        if f"-{letter}" not in known:
            return 0
        if known[f"-{letter}"]:
            return 1 if letters[position + 1 :] else 2
    return 1 if letters else 0


def _knows(script: Path, name: str) -> bool:
    """Whether a script's text names the option, or could make it of a field's name; what cannot be read may know it."""
    try:
        text = script.read_text(errors="replace")
    except OSError:
        return True
    if not name.startswith("--"):
        return f'"{name}"' in text or f"'{name}'" in text
    word = re.escape(name.removeprefix("--")).replace("\\-", "[-_]")
    return re.search(rf"(?<![\w-]){word}(?![\w-])|--{word}(?![\w-])", text) is not None
