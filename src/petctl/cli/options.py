"""Options and arguments that several verbs share, so that they read and behave the same everywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from petctl.jobs import JobHandle

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Verbs(click.Group):
    """Verbs under a verb; its help tells what each of them does in a whole sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = sorted(self.commands.items())
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=300)) for name, verb in verbs])


def examples(*lines: str) -> str:
    """The block at the end of a verb's help; \\b keeps click from joining the lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Job ids for the shell; a unique ending completes too. Silent on any error: the user is typing."""
    from click.shell_completion import CompletionItem

    try:
        from petctl.jobs import list_jobs

        jobs = list_jobs("local")  # the user is typing: no other cluster is waited for
    except Exception:
        return []
    jobs = [job for job in jobs if job.id.startswith(incomplete) or job.id.endswith(incomplete)]
    return [CompletionItem(job.id, help=job.state) for job in jobs]


job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
jobs_argument = click.argument("jobs", metavar="JOB...", nargs=-1, shell_complete=complete_job)


def _note_json(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value == "json" and ctx.find_root().obj is not None:
        ctx.find_root().obj.json = True
    return value


def output_option(*choices: str) -> Callable[[Decorated], Decorated]:
    """-o: the first choice is the default. Errors follow it, see failures.py."""
    choices = choices or ("text", "json")
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        is_eager=True,
        callback=_note_json,
        help="json: one JSON document on stdout, errors as JSON on stderr.",
    )


def print_json(document: object) -> None:
    """The one JSON document of a command."""
    click.echo(json.dumps(document, indent=2, default=str))


def print_unanswered(name: str, error: Exception) -> None:
    """Says in one line on stderr why a cluster's jobs are missing, and how to ask it alone."""
    reason, again = " ".join(str(error).split()), f"petctl list -c {name}"
    if _wants_json():
        click.echo(json.dumps({"cluster": name, "error": reason, "next": again}), err=True)
    else:
        end = "" if reason.endswith((".", "?")) else "."
        click.echo(f"petctl: cluster {name}: {reason}{end} To ask it alone: {again}", err=True)


def _wants_json() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and getattr(context.find_root().obj, "json", False))


def find_jobs(references: tuple[str, ...], patient: bool = False) -> list[JobHandle]:
    """All of the named jobs, or an error before anything is done to the first of them; `patient`: as in `get`."""
    from petctl.jobs import get

    handles = [get(reference, patient) for reference in references]
    return list({handle.id: handle for handle in handles}.values())
