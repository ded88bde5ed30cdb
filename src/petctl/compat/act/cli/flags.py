"""The flags of `act`: every verb takes them all, before it or right behind it; its help shows those that it heeds.

    @verb("submit", "act submit python train.py", heeds=("num_gpu", "cluster"))
    def submit(said: Said, words: tuple[str, ...]) -> int: ...

What stands behind the verb wins over what stands before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from petctl.compat.act.cli.verbs import commands, overview
from petctl.compat.batchai.cli.base_command import CONTEXT, VerbGroup, say
from petctl.console.commands import examples

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from petctl.compat.act.config.config import Config

Function = Callable[..., Any]
COMMAND_BEHIND = {**CONTEXT, "allow_interspersed_args": False}  # all from the first word on is the command's own


class Flags(NamedTuple):
    """What the flags of a command line say together."""

    num_gpu: int | None = None
    cluster: str | None = None
    from_cluster: str | None = None
    resubmit_to: str | None = None
    single: bool = False
    hold: bool = False
    compile_args: str | None = None
    new_code: bool = False
    without_log: bool = False
    without_details: bool = False
    end_of_log: bool = False
    max: int | None = None
    yes: bool = False
    output: str | None = None

    @property
    def json(self) -> bool:
        """Whether stdout is one JSON document."""
        return self.output == "json"

    def config(self, required: bool = True) -> Config:
        """The configuration that -c names, or the default one; where none is `required`, ACT's defaults will do."""
        from petctl.compat.act.config.config import find_config

        return find_config(self.cluster, required=required)

    def source(self) -> Config | None:
        """The configuration that -f names."""
        return self._named("-f", self.from_cluster)

    def target(self) -> Config | None:
        """The configuration that -rt names."""
        return self._named("-rt", self.resubmit_to)

    @staticmethod
    def _named(flag: str, name: str | None) -> Config | None:
        from petctl.compat.act.config.config import find_config

        return find_config(name, named_by=flag) if name else None


def _complete_config(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of YAML files and of petctl's clusters for the shell; silent on any error: the user is typing."""
    from pathlib import Path

    from click.shell_completion import CompletionItem

    names = {path.stem for path in Path("aux_data/aml").glob("*.yaml")}
    try:
        from petctl.config.settings import cluster_names

        names |= {"local", *cluster_names()}
    except Exception:
        pass
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _note_json(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value == "json" and ctx.find_root().obj is not None:
        ctx.find_root().obj.json = True
    return value


class _Flag(NamedTuple):
    words: tuple[str, ...]
    name: str
    help: str
    value: dict[str, Any] = {}  # noqa: RUF012  what click is told of its value; none: a switch


_CLUSTER = {"metavar": "NAME", "shell_complete": _complete_config}
FLAGS = (
    _Flag(
        ("-n", "--num_gpu"),
        "num_gpu",
        "GPUs in total; default: as in the YAML, or those of one node.",
        {"metavar": "N", "type": click.IntRange(min=0)},
    ),
    _Flag(("-c", "--cluster"), "cluster", "aux_data/aml/NAME.yaml, or one of petctl's clusters.", _CLUSTER),
    _Flag(("-f", "--from_cluster"), "from_cluster", "Copy from that configuration's blob.", _CLUSTER),
    _Flag(("-rt", "--resubmit_to"), "resubmit_to", "Cluster to run on.", _CLUSTER),
    _Flag(("-single",), "single", "One process per node, whatever multi_process says."),
    _Flag(("-hold",), "hold", "Keep the node when the command fails, until the run is aborted."),
    _Flag(("-ca", "--compile_args"), "compile_args", "Arguments for compile.aml.sh.", {"metavar": "WORDS"}),
    _Flag(("--new-code",), "new_code", "Pin the code as it is now, and run that."),
    _Flag(("-no-wl",), "without_log", "Fetch and show no logs."),
    _Flag(("-no-dt",), "without_details", "Do not show what is known of each run."),
    _Flag(("-no-lf",), "end_of_log", "Fetch only the end of each log."),
    _Flag(("--max",), "max", "List at most N.", {"metavar": "N", "type": click.IntRange(min=1)}),
    _Flag(("-y", "--yes"), "yes", "Do not ask."),
    _Flag(
        ("-o", "--output"),
        "output",
        "json: one JSON document on stdout, errors as JSON on stderr.",
        {"type": click.Choice(["text", "json"]), "is_eager": True, "callback": _note_json},
    ),
)
_ANYWHERE = ("cluster", "yes", "output")  # which mean no harm where they mean nothing
IDLE = (  # ACT takes these and does nothing with them
    _Flag(("-p", "--param"), "param", "No effect.", {"metavar": "YAML"}),
    _Flag(("-ic",), "inject_collection", "No effect.", {"metavar": "NAME"}),
    _Flag(("-no-wg",), "without_gpu", "No effect."),
    _Flag(("-no-m",), "without_meta", "No effect."),
    _Flag(("-no-s",), "without_speed", "No effect."),
)


def _option(flag: _Flag, hidden: bool) -> click.Option:
    settings = flag.value or {"is_flag": True}
    return click.Option([*flag.words, flag.name], help=flag.help, hidden=hidden, **settings)


class _Root(VerbGroup):
    """The whole front end."""

    def get_help(self, ctx: click.Context) -> str:
        return overview(ctx.info_name or "act")


def root(program: str) -> click.Group:
    """The command line under that name, with the flags that may stand before the verb."""
    made = _Root(program, verbs=commands(), beyond=f"'{program} --help' lists the commands.", help="See overview.")
    made.params = [_option(flag, hidden=False) for flag in (*FLAGS, *IDLE)]
    return made


def verb(
    name: str, *lines: str, heeds: tuple[str, ...] = (), command_behind: bool = False
) -> Callable[[Function], Any]:
    """A verb: the function's own arguments, and all flags as one `Flags`."""

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def run(**given: Any) -> int:
            context = click.get_current_context()
            before = context.parent.params if context.parent is not None else {}
            both = {flag.name: _both(given.pop(flag.name, None), before.get(flag.name)) for flag in (*FLAGS, *IDLE)}
            for flag in IDLE:
                if both.pop(flag.name):
                    say(f"{flag.words[0]} has no effect")
            for flag in FLAGS:
                if flag.name not in (*heeds, *_ANYWHERE) and both[flag.name] not in (None, False):
                    say(f"{flag.words[0]} has no effect on {context.info_name}")
            answer = function(Flags(**both), **given)
            return answer if isinstance(answer, int) else 0

        settings = COMMAND_BEHIND if command_behind else CONTEXT
        made = click.command(name, epilog=examples(*lines) if lines else None, context_settings=settings)(run)
        made.params += [_option(flag, hidden=flag.name not in heeds) for flag in (*FLAGS, *IDLE)]
        return made

    return decorate


def _both(behind: Any, before: Any) -> Any:
    return before if behind is None or behind is False else behind
