"""The last words about a job: how it ended, why, where the logs are, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from petctl.cli.terminal.text import duration, elapsed
from petctl.console.screen import Screen

if TYPE_CHECKING:
    from petctl.jobs import Status
    from petctl.jobs.status import ErrorStatus


def tell_end(status: Status, screen: Screen) -> int:
    """Says how the job ended, and gives the exit code of run and wait."""
    count = max(status.rounds_run, len(status.rounds))
    rounds = f", {count} rounds" if count > 1 else ""
    sentence = f"job {status.id} {status.state} after {duration(elapsed(status))}{rounds}: {status.sentence}"
    if status.state in ("failed", "lost"):
        told = status.error is not None and screen.has_shown(status.error.traceback or status.error.message)
        screen.complain("\n".join([sentence, *root_cause(status, told)]))
    else:
        screen.say(sentence)
    return exit_code(status)


def exit_code(status: Status) -> int:
    """The job's own code; a job that ended without one is nobody's success."""
    if status.exit_code is not None:
        return status.exit_code
    return 0 if status.state == "succeeded" else 1


def failure_lines(title: str, error: ErrorStatus, told: bool = False) -> list[str]:
    """Which worker failed, how, and what it left to read, unless that was told already."""
    how = f"killed by {error.signal}" if error.signal else f"exit code {error.code}"
    if error.hung:
        how = f"hangs: {error.message}"
    if error.lasting:
        how = f"was not started, code {error.code}"
    who = f"{error.task} (rank {error.rank})" if error.task else f"rank {error.rank}"
    head = f"{title}  {who} on node {error.node}, {how}"
    words = [f"    {line}" for line in (error.traceback or error.message).splitlines() if not told]
    return [head, *words, *_known_cause(error.cause, " " * (len(title) - len(title.lstrip())))]


def told_cause(status: Status, indentation: str = "") -> list[str]:
    """The cause that its sentence shows, where no worker is to blame."""
    if status.error is not None or status.state in ("succeeded", "cancelled"):
        return []
    from petctl.causes import find

    return _known_cause(find(status.sentence), indentation)


def _known_cause(name: str, indentation: str) -> list[str]:
    """What a cause is called, means and calls for, if that is known."""
    if not name:
        return []
    from petctl.causes import known

    cause = known().get(name)  # one of a newer version is only named
    if cause is None:
        return [f"{indentation}cause       {name}"]
    return [f"{indentation}cause       {cause.name}: {cause.says}", f"{indentation}advice      {cause.advice}"]


def root_cause(status: Status, told: bool = False) -> list[str]:
    """Which worker failed first, its traceback, where the logs are, and what to type next."""
    lines: list[str] = []
    next_command = f"petctl logs {status.id}"
    error = status.error
    if error is not None:
        lines += failure_lines("  root cause", error, told)
        last = f" --round {status.rounds[-1].number}" if status.rounds else ""
        next_command += f" --rank {error.rank}{last}"
    lines += told_cause(status, "  ")
    if status.directory:
        lines.append(f"  logs        {status.directory}/logs")
    return [*lines, f"  next        {next_command}"]
