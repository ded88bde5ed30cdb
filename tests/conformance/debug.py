"""The debug cluster: jobs in the memory of this process."""

from __future__ import annotations

from typing import ClassVar

from tests.conformance import backend as has
from tests.conformance.backend import Backend


class DebugBackend(Backend):
    """Nothing to be brought up, and little to be broken."""

    name = cluster = "debug"
    lacks: ClassVar = {
        has.OTHER_PROCESSES: "jobs are in the memory of their submitter",
        has.LOSE_NODE: "a node is nothing but its workers",
        has.LOSE_CONTROLLER: "it is a thread of the submitter",
        has.WAITING: "there is no queue",
        has.UNREACHABLE: "there is nobody else",
        has.TOKEN: "nobody can join from elsewhere",
    }

    def left(self, job_id: str) -> list[str]:
        return [str(path) for path in (self.directory / "home" / "debug").glob(job_id)]
