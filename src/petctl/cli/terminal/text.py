"""What people read: durations, tables, one job's page, the root cause. Text in, text out; nothing is printed here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Sequence

if TYPE_CHECKING:
    from petctl.job.spec.roles import Role
    from petctl.jobs import Status
    from petctl.jobs.status import ProgressStatus, RoleStatus


def duration(seconds: float) -> str:
    """Seconds as people say them: 0.4s, 12s, 3m 04s, 2h 05m, 3d 04h."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def many_workers(status: Status) -> bool:
    """Whether lines need a prefix that tells whose they are."""
    return status.size.max > 1 or bool(status.roles) or any(past.world_size > 1 for past in status.rounds)


def task_names(roles: Sequence[RoleStatus | Role], least: int, most: int) -> list[str]:
    """What the ranks of a job with roles are called; none where that is another thing in each round."""
    if not roles or least != most:
        return []
    from petctl.agent.launchers.roles import task_names as by_rank  # few jobs have any

    return by_rank(roles, most)


def elapsed(status: Status) -> float:
    """Seconds from submission to the end, or to now."""
    return max(0.0, (status.finished or time.time()) - status.submitted)


def progress_words(progress: ProgressStatus) -> str:
    """How far it is and how fast: step 120  8.3/s  loss 0.31."""
    parts = [f"step {progress.step}"]
    if progress.steps_per_second:
        parts.append(f"{progress.steps_per_second:.3g}/s")
    parts += [
        f"{name} {value if isinstance(value, str) else format(value, '.4g')}"
        for name, value in progress.metrics.items()
    ]
    return "  ".join(parts)


def moment(when: float) -> str:
    """A point in time, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart; the last column is not padded."""
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )


def indent(text: str, by: str = "  ") -> str:
    """Every line moved to the right."""
    return "\n".join(by + line for line in text.rstrip().splitlines())
