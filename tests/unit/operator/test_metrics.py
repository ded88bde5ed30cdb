"""Figures of jobs for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob
from petctl.clusters.kubernetes.operator.runtime import metrics
from petctl.clusters.kubernetes.operator.runtime.cache import Cache
from petctl.clusters.kubernetes.operator.runtime.metrics import JobMetrics
from petctl.errors import Unreachable
from tests.unit.operator.held import JOBS, Held, elastic_job

TOTALS = {"rounds_run": 3, "nodes_lost": 2, "spent": 1, "seconds_lost": 1.25, "unknown": "x"}


def cache_of(*phases: str) -> Cache:
    """Jobs in these phases; an empty one: no operator has seen it yet."""
    server = Held()
    jobs = Cache(server.api, JOBS, "", lambda thing: None)
    for number, phase in enumerate(phases):
        job = elastic_job(replicas=2)
        job["metadata"]["name"] = f"job-{number:04d}"
        if phase:
            job["status"] = {"phase": phase, "wanted": 2, "readyReplicas": 1, "coordinators": 2}
        jobs.put(server.add(JOBS, job))
    return jobs


def tells(job: ElasticJob) -> Mapping[str, Any]:
    return TOTALS


def own(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("petctl_job_")]


def test_jobs_are_counted_by_state() -> None:
    text = JobMetrics(cache_of("Running", "Running", "Failed", "", "Odd"), tells).text()
    counts = [line for line in text.splitlines() if line.startswith("petctl_jobs{")]
    assert counts == [
        'petctl_jobs{state="pending"} 2',
        'petctl_jobs{state="starting"} 0',
        'petctl_jobs{state="running"} 2',
        'petctl_jobs{state="recovering"} 0',
        'petctl_jobs{state="suspended"} 0',
        'petctl_jobs{state="succeeded"} 0',
        'petctl_jobs{state="failed"} 1',
    ]


def test_a_job_that_goes_on_has_figures_of_its_own() -> None:
    found = JobMetrics(cache_of("Running", "Succeeded"), tells)
    labels = '{namespace="team",job="job-0000"}'
    at_once = [f"petctl_job_nodes_wanted{labels} 2", f"petctl_job_nodes_running{labels} 1"]
    at_once.append(f"petctl_job_coordinators_total{labels} 2")
    assert own(found.text()) == at_once
    found.ask_all()
    assert own(found.text()) == [
        *at_once,
        f"petctl_job_rounds_total{labels} 3",
        f"petctl_job_nodes_lost_total{labels} 2",
        f"petctl_job_failures_total{labels} 1",
        f"petctl_job_seconds_lost_total{labels} 1.25",
    ]
    families = [line.split()[2] for line in found.text().splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) == 8


def test_what_a_coordinator_told_last_holds_while_it_is_replaced() -> None:
    answers: list[Mapping[str, Any] | None] = [TOTALS, None]

    def ask(job: ElasticJob) -> Mapping[str, Any]:
        answer = answers.pop(0)
        if answer is None:
            raise Unreachable("it is being replaced")
        return answer

    found = JobMetrics(cache_of("Running"), ask)
    for _ in range(2):
        found.ask_all()
    assert 'petctl_job_rounds_total{namespace="team",job="job-0000"} 3' in found.text()


def test_however_many_jobs_there_are_the_figures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 3)
    asked: list[str] = []

    def ask(job: ElasticJob) -> Mapping[str, Any]:
        asked.append(job.name)
        return TOTALS

    found = JobMetrics(cache_of(*["Running"] * 10), ask)
    found.ask_all()
    assert asked == ["job-0000", "job-0001", "job-0002"]
    assert len(own(found.text())) == 3 * 7 and 'petctl_jobs{state="running"} 10' in found.text()


def test_coordinators_are_asked_only_after_somebody_has_read() -> None:
    asked = threading.Event()

    def ask(job: ElasticJob) -> Mapping[str, Any]:
        asked.set()
        return TOTALS

    found = JobMetrics(cache_of("Running"), ask)
    found.start()
    try:
        assert not asked.is_set()
        found.text()
        assert asked.wait(20)
    finally:
        found.stop()


def test_totals_never_go_down_when_a_coordinator_is_replaced() -> None:
    answers: list[Mapping[str, Any]] = [
        TOTALS,
        {"rounds_run": 0, "nodes_lost": 0, "spent": 0, "seconds_lost": 0.0},
        {**TOTALS, "rounds_run": 4},
    ]
    found = JobMetrics(cache_of("Running"), lambda job: answers.pop(0))
    counted = []
    for _ in range(3):
        found.ask_all()
        counted += [line.split()[-1] for line in own(found.text()) if line.startswith("petctl_job_rounds_total")]
    assert counted == ["3", "3", "4"]
    assert 'petctl_job_seconds_lost_total{namespace="team",job="job-0000"} 1.25' in own(found.text())
