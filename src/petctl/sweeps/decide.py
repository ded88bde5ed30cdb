"""What is to be done for a sweep now: pure, from its history and its limits.

A point is due when it has no attempt yet, or when its last one failed and it has retries left. Failed ones go first.
An attempt ends early when a condition of --stop-when holds, when the median rule says so, or with the whole sweep: it
was cancelled, or some point has reached --until. Every decision has its reason, which the user sees.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from petctl.errors import UsageError
from petctl.sweeps.history import AGAIN, CUT_SHORT, Attempt, History, Standing
from petctl.sweeps.measure import PRINTED, Condition, Measurement, better, parse_condition, parse_pattern, tells_step
from petctl.sweeps.record import Limits

AHEAD = 50  # jobs in line or running at once, where nobody says how many
PEERS, ENOUGH = 3, 500  # the median of fewer points says nothing, that of more says no more
RULES = ("", "median")
CANCELLED = "the sweep was cancelled"


class Rules(NamedTuple):
    """Limits, understood."""

    jobs: int
    retries: int
    metric: str
    goal: str
    take: str
    stop_when: tuple[Condition, ...]
    median: bool
    warm_up_steps: float
    warm_up_seconds: float
    until: Condition | None


class Submission(NamedTuple):
    """An attempt at a point; attempts are counted from 1."""

    point: int
    attempt: int


class Decision(NamedTuple):
    """What to do. `reached`: why the sweep has what it wants, in the moment in which it has."""

    submit: tuple[Submission, ...] = ()
    stop: tuple[tuple[str, str], ...] = ()  # id, why
    drop: tuple[str, ...] = ()  # were to be submitted, and never will be
    reached: str = ""
    over: bool = False


def rules_of(limits: Limits) -> Rules:
    """Refuses what cannot be meant."""
    if limits.jobs < 0 or limits.retries < 0:
        raise UsageError("-j and --retries must be 0 or more")
    if limits.early_stop not in RULES:
        raise UsageError(f"--early-stop {limits.early_stop}: the only rule is median")
    if limits.regex and not tells_step(parse_pattern(limits.regex)) and limits.early_stop:
        raise UsageError(
            "--early-stop compares points at equal steps; let --metric-regex find the steps too: (?P<step>...)"
        )
    metric = metric_of(limits)
    if limits.early_stop and not metric:
        raise UsageError(f"--early-stop {limits.early_stop} compares a metric; name it with --metric or --metric-regex")
    if limits.warm_up and not limits.early_stop:
        raise UsageError("--warm-up needs --early-stop median")
    in_steps = limits.warm_up.strip().isdigit()
    return Rules(
        jobs=limits.jobs or AHEAD,
        retries=limits.retries,
        metric=metric,
        goal=limits.goal,
        take=limits.take,
        stop_when=tuple(parse_condition(text, "--stop-when") for text in limits.stop_when),
        median=limits.early_stop == "median",
        warm_up_steps=float(limits.warm_up) if in_steps else 0.0,
        warm_up_seconds=0.0 if in_steps or not limits.warm_up else _seconds(limits.warm_up),
        until=parse_condition(limits.until, "--until") if limits.until else None,
    )


def check_conditions(limits: Limits) -> None:
    """Refuses conditions on numbers that nobody will ever tell: of printed ones there is the metric, and the step."""
    rules = rules_of(limits)
    known = [rules.metric, *(["step"] if limits.regex and tells_step(parse_pattern(limits.regex)) else [])]
    for condition in (*rules.stop_when, *([rules.until] if rules.until else [])):
        if limits.regex and condition.name not in known:
            raise UsageError(
                f"{condition}: --metric-regex finds {' and '.join(known)}, and no {condition.name}; name the metric "
                f"with --metric {condition.name}, or the step with a group (?P<step>...)"
            )


def metric_of(limits: Limits) -> str:
    """What the metric is called; empty where none is asked for."""
    return limits.metric or (PRINTED if limits.regex else "")


def decide(history: History, rules: Rules, now: float) -> Decision:
    """What to do now; `over` when there is nothing to do and nothing to wait for."""
    under_way = history.open
    reached = history.reached or _reached(history, rules)
    if history.cancelled or reached:
        why = CANCELLED if history.cancelled else reached
        return Decision(
            stop=tuple((attempt.id, attempt.stop or why) for attempt in under_way.values() if attempt.accepted),
            drop=tuple(attempt.id for attempt in under_way.values() if not attempt.accepted),
            reached="" if history.reached else reached,
            over=not under_way,
        )
    peers = _peers(history, rules) if rules.median else []
    stop = [(attempt.id, why) for attempt in under_way.values() if (why := _why_stop(attempt, peers, rules, now))]
    repeated = list(_repeated(history))
    room = max(0, rules.jobs - len(under_way))
    fresh = _due(history, rules)[:room]
    return Decision((*repeated, *fresh), tuple(stop), over=not under_way and not fresh)


def _repeated(history: History) -> Sequence[Submission]:
    """Those that nobody knows of whether they were accepted: submitting them again tells."""
    return [
        Submission(number, len(history.points[number].attempts))
        for number, attempt in history.open.items()
        if not attempt.accepted
    ]


def _due(history: History, rules: Rules) -> list[Submission]:
    due = [(number, standing) for number, standing in history.points.items() if _is_due(standing, rules)]
    due.sort(key=lambda pair: not pair[1].attempts)  # second attempts first
    return [Submission(number, len(standing.attempts) + 1) for number, standing in due]


def _is_due(standing: Standing, rules: Rules) -> bool:
    last = standing.last
    if last is None or len(standing.attempts) == standing.before or (last.ended and last.state == CUT_SHORT):
        return True
    made = sum(attempt.state != CUT_SHORT for attempt in standing.attempts[standing.before :])
    return last.ended and not last.stop and last.state in AGAIN and made <= rules.retries


def _reached(history: History, rules: Rules) -> str:
    if rules.until is None:
        return ""
    for number, standing in history.points.items():
        for attempt in standing.attempts:
            if any(rules.until.holds(metrics) for metrics in (attempt.metrics, attempt.low, attempt.high)):
                return f"point {number} has reached {rules.until}"
    return ""


def _peers(history: History, rules: Rules) -> list[tuple[Attempt, Measurement]]:
    """Whom the median rule compares with: of very many points some, spread evenly, say as much as all."""
    told = [
        standing.last for standing in history.points.values() if standing.last is not None and standing.last.readings
    ]
    return [(attempt, attempt.means(rules.metric)) for attempt in told[:: len(told) // ENOUGH + 1]]


def _why_stop(attempt: Attempt, peers: Sequence[tuple[Attempt, Measurement]], rules: Rules, now: float) -> str:
    """Why an attempt ends early; a reason that was found once holds."""
    if attempt.stop or not attempt.accepted:
        return attempt.stop
    for condition in rules.stop_when:
        if condition.holds(attempt.metrics):
            return f"{condition} (it is {attempt.metrics[condition.name]:g})"
    if rules.median and attempt.started is not None and now - attempt.started >= rules.warm_up_seconds:
        return _below_median(attempt, peers, rules)
    return ""


def _below_median(attempt: Attempt, peers: Sequence[tuple[Attempt, Measurement]], rules: Rules) -> str:
    """The median stopping rule: its best value so far is worse than the median of the others' means up to there."""
    steps = attempt.means(rules.metric).steps
    if not steps or steps[-1] < rules.warm_up_steps:
        return ""
    means = [means.up_to(steps[-1]) for peer, means in peers if peer is not attempt]
    others = [mean for mean in means if mean is not None]
    if len(others) < PEERS:
        return ""
    median = statistics.median(others)
    value = attempt.high[rules.metric] if rules.goal == "max" else attempt.low[rules.metric]
    if better(rules.goal)(median, value):
        return f"{rules.metric} {value:g} is worse than the median of {len(others)} others, {median:g}"
    return ""


def _seconds(text: str) -> float:
    from petctl.job.spec import parse_duration

    return parse_duration(text)
