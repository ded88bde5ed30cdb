"""Every petctl command that a page or a help text shows can be typed: its verbs and options are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from petctl.cli.group import petctl
from petctl.cli.verbs import VERBS
from petctl.compat.act.cli.flags import root

ROOT = Path(__file__).parents[3]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
PLACEHOLDERS = {"[...]", "...", "[OPTIONS]"}
SEVERAL = re.compile(r"\[-|\w\|\w")  # [--nodes N], ls|get


def shown(text: str) -> list[str]:
    """Commands in blocks and in quotes, each without what is said behind it; none that stands for several."""
    indented = [line.strip() for line in text.splitlines() if line.startswith(" ")]
    blocks = [part for line in indented for part in re.split(r" {2,}", line)]
    quoted = [code.replace(r"\|", "|") for code in re.findall(r"`([^`\n]+)`", text)]
    parts = [part for line in (*blocks, *quoted) for part in re.split(r" (?:\||&&|>|<) |\$\(", line)]
    commands = [one for part in parts if part.startswith("petctl ") for one in part.split("; ")]
    return sorted({one.rstrip(")") for one in commands if re.match(r"petctl [a-z]", one) and not SEVERAL.search(one)})


def own_examples() -> str:
    """The examples of every verb's help, and of the verbs below it."""
    found = []
    with petctl.make_context("petctl", ["list"]) as ctx:
        for name in VERBS:
            verb = petctl.get_command(ctx, name)
            assert verb is not None
            below = verb.commands.values() if isinstance(verb, click.Group) else ()
            found += [one.epilog or "" for one in (verb, *below)]
    return "\n".join(found)


def unknown(line: str) -> str:
    """What of these words petctl does not know. Values that a line leaves open, or leaves out, are fine."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word not in PLACEHOLDERS]
    command: click.Command = petctl
    context: click.Context | None = None
    name: str | None = "petctl"
    try:
        while True:
            context = command.make_context(name, words, parent=context)
            if not isinstance(command, click.Group):
                return ""
            name, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            command = found
    except (click.BadParameter, click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
        return ""
    except click.UsageError as error:
        return f"{line}: {error.message}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_can_be_typed(page: Path) -> None:
    assert [fault for line in shown(page.read_text()) if (fault := unknown(line))] == []


def test_examples_of_help_can_be_typed() -> None:
    lines = shown(own_examples())
    assert len(lines) > 80
    assert [fault for line in lines if (fault := unknown(line))] == []


def test_a_slip_would_be_found() -> None:
    assert "no such option" in unknown("petctl run --ranks 2 train.py").lower()
    assert "unknown command" in unknown("petctl launch train.py")
    assert unknown("petctl cluster remove small")
    assert not unknown("petctl logs -f")


def test_each_front_end_tells_of_its_own_completion() -> None:
    front = root("act")
    with front.make_context("act", ["completion"]) as ctx:
        command = front.get_command(ctx, "completion")
        assert command is not None
        with click.Context(command, parent=ctx, info_name="completion") as below:
            assert "source <(act completion bash)" in command.get_help(below)
