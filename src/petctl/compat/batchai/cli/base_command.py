"""What every verb of a front end has: its common options, how its answer is printed, what it says beside it.

    @leaf(group, "exists -n recipes")
    @option("-n, --name NAME", "The resource group.")
    def exists(name: str) -> object: ...               the answer; NOTHING prints nothing

`VerbGroup` finds a verb's file when it is typed.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from petctl.compat.batchai.cli.printing import FORMATS, Row, print_answer
from petctl.console.commands import examples
from petctl.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NOTHING = object()
MANY = ("--ids", "--tags")
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
Function = Callable[..., Any]


class Exit(int):
    """An answer that is only an exit code."""


class IdleOption(click.Option):
    """One that is taken for the sake of scripts and has no effect here, which is said when somebody gives it."""


class VerbGroup(click.Group):
    """A group whose verbs are files: name -> (file:command, summary)."""

    def __init__(self, *args: Any, verbs: Mapping[str, tuple[str, str]], beyond: str = "", **kwargs: Any) -> None:
        super().__init__(*args, context_settings=CONTEXT, **kwargs)
        self.verbs, self.beyond = verbs, beyond

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        file, _, name = self.verbs[cmd_name][0].partition(":")
        return cast(click.Command, getattr(importlib.import_module(f"petctl.compat.{file}"), name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word in self.verbs or word.startswith("-"):
            return super().resolve_command(ctx, args)
        import difflib

        near = difflib.get_close_matches(word, self.verbs, n=1)
        advice = f" Did you mean {near[0]}?" if near else f" {self.beyond}" if self.beyond else ""
        raise click.UsageError(f"unknown command {word!r}.{advice}", ctx)


class Verbs(click.Group):
    """A group of verbs that are in the same file; `words`: how one gets to it, `row`: how its answers are a table."""

    words: str
    row: Row | None


def group(name: str, help: str, parent: Verbs | str = "batchai", row: Row | None = None) -> Verbs:  # noqa: A002
    """Makes one, below another or a program."""
    made = Verbs(name, help=help, context_settings=CONTEXT)
    made.words, made.row = f"{parent if isinstance(parent, str) else parent.words} {name}", row
    if not isinstance(parent, str):
        parent.add_command(made)
    return made


def option(
    words: str,
    help: str,  # noqa: A002  click's own word
    variable: str = "",
    names: str = "",
    **more: Any,
) -> Callable[[Function], Function]:
    """An option in the words of its help: "-t, --target N" has a value, "--no-wait" has none; a word in small letters
    is what the function calls it. `variable`: of the environment, which may say it too; `names`: the kind of resource
    whose names a shell completes."""
    if variable:
        more = {"default": "", "envvar": variable, **more}
    if names:
        more["shell_complete"] = functools.partial(_complete, names)
    said = words.replace(",", " ").split()
    declared = [word for word in said if word.startswith("-") or word.islower()]
    if len(declared) < len(said):
        more["metavar"] = said[-1]
    elif "type" not in more:
        more["is_flag"] = True
    return click.option(*declared, help=help, **more)


def _complete(kind: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of resources for the shell; silent on any error: the user is typing."""
    from click.shell_completion import CompletionItem

    try:
        from petctl.compat.batchai.service.names import DEFAULT, KINDS, Address
        from petctl.compat.batchai.service.resource_store import Tree
        from petctl.compat.batchai.service.resources import trail_of
        from petctl.home import petctl_home

        group, workspace, job_in = (ctx.params.get(name) or DEFAULT for name in ("group", "workspace", "experiment"))
        trail = trail_of("jobs", Address(group, workspace, job_in, "-"))[: len(KINDS[kind].path)]
        found = Tree(petctl_home()).names(trail, kind)
    except Exception:
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def leaf(parent: Verbs | str, *lines: str, row: Row | None = None) -> Callable[[Function], Any]:
    """A verb of a group or program, named as its first example begins: the function's own options and the common ones;
    what it gives is printed."""
    program = parent if isinstance(parent, str) else parent.words
    as_row = row or (None if isinstance(parent, str) else parent.row)

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def answered(
            output: str,
            query: str | None,
            subscription: str | None,
            verbose: bool,
            debug: bool,
            only_show_errors: bool,
            **given: Any,
        ) -> int:
            context = click.get_current_context()
            context.meta.update(verbose=verbose or debug, errors_only=only_show_errors)
            say_idle(max(option.opts, key=len) for option in _idle_options(context))
            answer = function(**given)
            if isinstance(answer, Exit):
                return int(answer)
            if answer is not NOTHING:
                print_answer(answer, output, query, as_row)
            return 0

        own = getattr(function, "__click_params__", [])
        run: Function = answered
        run.__click_params__ = []  # type: ignore[attr-defined]  # the common ones come last in help
        for common in reversed(_COMMON):
            run = common(run)
        run.__click_params__ += own  # type: ignore[attr-defined]
        epilog = examples(*(f"{program} {line}" for line in lines))
        command = click.command(lines[0].split()[0], epilog=epilog, context_settings=CONTEXT)(run)
        if not isinstance(parent, str):
            parent.add_command(command)
        return command

    return decorate


_COMMON = (
    option("-o, --output", "How to print it.", type=click.Choice(FORMATS), default="json", show_default=True),
    option("--query JMESPATH", "Print only what this finds in the answer."),
    option("--subscription ID", "Accepted; there is none here.", cls=IdleOption),
    option("--verbose", "Say on stderr what is done, in petctl's own words."),
    option("--debug", "The same."),
    option("--only-show-errors", "No remarks on stderr."),
)


def say(sentence: str) -> None:
    """A remark on stderr, under the name that the user typed."""
    context = click.get_current_context()
    if not context.meta.get("errors_only"):
        click.echo(f"{context.find_root().info_name}: {sentence}", err=True)


def say_idle(options: Iterable[str]) -> None:
    """That these have no effect."""
    given = list(options)
    if given:
        say(f"{', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect on this machine")


def was_given(name: str) -> bool:
    """Whether the user has typed that parameter."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _idle_options(context: click.Context) -> Iterator[click.Parameter]:
    for option in context.command.params:
        if isinstance(option, IdleOption) and option.name and was_given(option.name):
            yield option


def detail(sentence: str) -> None:
    """A remark for --verbose."""
    if click.get_current_context().meta.get("verbose"):
        say(sentence)


def confirm(question: str, yes: bool) -> None:
    """Asks on a terminal; elsewhere nobody can answer, and -y is how a script says that it means it."""
    if yes or not sys.stdin.isatty():
        return
    if not click.confirm(question, err=True):
        raise UsageError("nothing was done; use -y to skip the question")


def spread(words: Sequence[str]) -> list[str]:
    """`--ids A B C` as `--ids A --ids B --ids C`: such options take all words up to the next one."""
    result: list[str] = []
    taking = ""
    for word in words:
        if word in MANY:
            taking = word
        elif taking and not word.startswith("-"):
            result += [taking, word]
        else:
            taking = ""
            result.append(word)
    return result


def background(words: Sequence[str]) -> None:
    """Runs a verb of `batchai` that nobody waits for, in a process of its own; in this directory, whose petctl.yaml may
    be needed."""
    import subprocess

    subprocess.Popen(
        [sys.executable, "-P", "-m", "petctl.compat.batchai.cli.batchai", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ,
        start_new_session=True,
    )
