"""One job's page: everything `petctl status` tells a person."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Sequence

import click

from petctl.cli.terminal.ending import failure_lines, root_cause, told_cause
from petctl.cli.terminal.table import STATE_STYLES
from petctl.cli.terminal.text import duration, elapsed, indent, moment, progress_words, table, task_names

if TYPE_CHECKING:
    from petctl.jobs import Status


def job_page(status: Status, colour: bool) -> str:
    """The page; colour only where somebody sees it."""
    parts = [_facts(status, colour)]
    if status.nodes:
        steps = _steps(status)
        names = task_names(status.roles, status.size.min, status.size.max)
        rows = [
            [
                *(node.name, node.state, _ranks(node.ranks), steps.get(node.name, "-")),
                *(str(node.restarts), node.address or "-", str(node.pid or "-")),
                *([", ".join(names[rank] for rank in node.ranks if rank < len(names)) or "-"] if names else []),
            ]
            for node in status.nodes
        ]
        header = ["NODE", "STATE", "RANKS", "STEP", "RESTARTS", "ADDRESS", "PID", *(["TASKS"] if names else [])]
        parts += ["nodes", indent(table(header, rows))]
    if status.rounds:
        rows = [
            [str(r.number), str(len(r.nodes)), str(r.world_size), f"{r.seconds_lost:.2f}s", moment(r.started), r.reason]
            for r in status.rounds
        ]
        parts += ["rounds", indent(table(["ROUND", "NODES", "WORKERS", "LOST", "STARTED", "REASON"], rows))]
    if status.last_failure is not None and status.error is None:
        parts.append("\n".join(failure_lines("last failure", status.last_failure)))
    if status.error is not None or status.state == "lost":
        parts.append("\n".join(root_cause(status)))
    else:
        parts += told_cause(status)
    return "\n".join(parts)


def _facts(status: Status, colour: bool) -> str:
    now = time.time()
    state = click.style(status.state, fg=_foreground(status.state)) if colour else status.state
    since = f"at {moment(status.since)}" if status.final else f"for {duration(now - status.since)}"
    size = status.size
    running = sum(node.state == "running" for node in status.nodes)
    limits = f"{size.min}" if size.min == size.max else f"{size.min} to {size.max}"
    facts = [
        ("job", f"{status.id}  ({status.command})"),
        ("state", f"{state} {since}"),
        ("", status.sentence),
        ("nodes", f"{running} running, {size.wanted} wanted, {limits} allowed"),
        ("round", f"{status.round}" if status.round else ""),
        ("progress", progress_words(status.progress) if status.progress is not None else ""),
        ("slow", _stragglers(status)),
        ("failures", f"{status.spent} of {status.restarts} restarts used"),
        ("submitted", f"{moment(status.submitted)}, {duration(elapsed(status))} {'in all' if status.final else 'ago'}"),
        ("exit code", "" if status.exit_code is None else str(status.exit_code)),
        ("code", status.code),
        *((("folders" if not number else ""), folder) for number, folder in enumerate(status.folders)),
        ("directory", status.directory),
        ("results", status.results),
    ]
    return "\n".join(f"{name:<11}{value}" for name, value in facts if value)


def _stragglers(status: Status) -> str:
    if status.progress is None or not status.progress.stragglers or status.final:
        return ""
    slow = ", ".join(map(str, status.progress.stragglers))
    return f"rank {slow} below 0.8 of the median pace"


def _steps(status: Status) -> dict[str, str]:
    """The steps of each node's ranks, of the slowest and the fastest where they differ."""
    found: dict[str, list[int]] = {}
    for row in status.progress.ranks if status.progress is not None else ():
        found.setdefault(row.node, []).append(row.step)
    return {node: _ranks(sorted(steps)) for node, steps in found.items()}


def _ranks(ranks: Sequence[int] | None) -> str:
    """The first and last rank of a node: 4-7."""
    if not ranks:
        return "-"
    return str(ranks[0]) if ranks[0] == ranks[-1] else f"{ranks[0]}-{ranks[-1]}"


def _foreground(state: str) -> str | None:
    style = STATE_STYLES.get(state)
    return None if style == "dim" else style
