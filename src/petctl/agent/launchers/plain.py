"""A plain job on one node: its tasks, and the ports that are held for them until they start.

Which tasks a node has, and what each is told of the others, is said in `roles.py`.
"""

from __future__ import annotations

import dataclasses
from typing import List, Mapping

from petctl.agent.launchers import roles
from petctl.agent.launchers.launchers import Launcher, worker_launch
from petctl.agent.launchers.port_reservation import TaskPorts
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.workers import Launch
from petctl.job.task import Task


class PlainTasks(Launcher):
    """Tasks of roles, or workers that find each other by themselves."""

    early = False  # they are told who the others are, which nobody knows yet

    def __init__(self) -> None:
        self._ports = TaskPorts()

    def offer(self, task: Task, node: str, address: str, procs: int) -> str:
        """Where its tasks will listen."""
        return roles.offer(address, self._ports.hold(roles.most_tasks(task, procs)))

    def plan(self, task: Task, context: RoundContext, inherited: Mapping[str, str], log_dir: str) -> List[Launch]:
        """Lets their ports go."""
        planned = []
        for local_rank, one in enumerate(roles.assignments(task, context)):
            launch = worker_launch(one.task, context, inherited, log_dir, local_rank)
            env = {**launch.env, **one.variables}
            planned.append(dataclasses.replace(launch, env=env, task=one.name, serves=one.serves))
        self._ports.release()
        return planned
