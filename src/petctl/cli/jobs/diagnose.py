"""petctl diagnose: the known causes of a job's failure, with what to do about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from petctl.cli.options import complete_job
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.jobs.diagnosis import Diagnosis, Finding

_RANKS = 8  # that are named


@click.command(
    "diagnose",
    epilog=examples(
        "petctl diagnose mnist-3f9k",
        "petctl diagnose -o json 3f9k",
        "petctl diagnose --log train.log",
        "some-command 2>&1 | petctl diagnose --log -",
    ),
)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_job)
@click.option("--log", metavar="FILE", type=click.File("rb"), help="Diagnose this log file of any program; -: stdin.")
@output_option()
def command(job: str | None, log: BinaryIO | None, output: str) -> None:
    """Look for known causes of failure in a job's status, events and logs: the root cause first, with advice.

    docs/diagnosis.md lists the causes. Their names can stand in retry_on.
    """
    import msgspec

    from petctl.jobs.diagnosis import diagnose, diagnose_log

    if (job is None) == (log is None):
        raise UsageError("no job given: name one, or a file with --log")
    if log is not None:
        found = diagnose_log(log.name.strip("<>"), log)
    else:
        from petctl.jobs import get

        found = diagnose(get(str(job)))
    if output == "json":
        print_json(msgspec.to_builtins(found))
    else:
        click.echo("\n".join(diagnosis_lines(found)))


def diagnosis_lines(found: Diagnosis) -> list[str]:
    """A diagnosis as people read it."""
    lines = [f"job {found.job} {found.state}: {found.sentence}"] if found.job else []
    if found.root is not None:
        lines += _finding(found.root, "cause")
    elif found.failed:
        lines.append("found no known cause" + ("; the last lines:" if found.last_lines else ", and no line of a log"))
        lines += [f"    {line}" for line in found.last_lines]
    others = [finding for finding in found.findings if finding != found.root]
    for finding in others:
        lines += _finding(finding, "seen")
    if found.unread:
        lines.append(f"some logs could not be read: {found.unread}")
    if not found.failed and not found.findings:
        lines.append("found no sign of a failure")
    return lines


def _finding(finding: Finding, title: str) -> list[str]:
    shown = [*map(str, finding.ranks[:_RANKS]), *(["..."] if len(finding.ranks) > _RANKS else [])]
    facts = [f"rank {', '.join(shown)}"] if shown else []
    facts += [f"{finding.count} times"] if finding.count > 1 else []
    return [
        f"{title:<8}{finding.cause}: {finding.says}" + (f" ({'; '.join(facts)})" if facts else ""),
        f"{'advice':<8}{finding.advice}",
        *([f"{'where':<8}{finding.where}"] if finding.where else []),
        *(f"    {line}" for line in finding.excerpt),
    ]
