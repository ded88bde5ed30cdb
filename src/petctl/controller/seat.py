"""The seam between a job's controller and the place where it runs: its port, what it is given there, who replaces it.

On this machine that is a process with a lock and a standby (`clusters/local/controller/local_seat.py`), in a cluster
process 1's child in a container (`pod_seat.py`). Small to import: process 1 uses the exit codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Coroutine, Dict, Optional, Sequence, Tuple

if TYPE_CHECKING:
    import ssl

    from petctl.controller.job_controller import JobController
    from petctl.rendezvous.net.calls import Call
    from petctl.rendezvous.net.server import CoordinatorServer

OVER, DEPOSED, REQUEUED = 0, 91, 92
"""Why a controller ends: the job is over; a newer controller has it; it waits for nodes again. Also exit codes."""


class Seat:
    """Where one controller runs."""

    fresh = True  # no controller before this one had any nodes
    remark = ""  # for the status

    async def take(self, job: JobController) -> bool:
        """Returns when the job may begin, or go on; False when it may not, or is over."""
        raise NotImplementedError

    async def listen(self, server: CoordinatorServer) -> None:
        """Opens the port, and says where it is."""
        raise NotImplementedError

    def token(self) -> str:
        """Who may connect."""
        raise NotImplementedError

    def encryption(self) -> Tuple[Optional[ssl.SSLContext], str]:
        """TLS, and what proofs are bound to."""
        raise NotImplementedError

    def secret_values(self) -> Dict[str, str]:
        """The job's secrets, by their variables; UsageError says which is not to be had."""
        raise NotImplementedError

    def archive(self) -> str:
        """The path of the job's code."""
        raise NotImplementedError

    def calls(self) -> Dict[str, Call]:
        """Control calls of this kind of seat."""
        return {}

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs beside the controller until the job's end."""
        return ()

    def leave(self, code: int) -> None:
        """The job goes on without this process."""

    async def finish(self) -> None:
        """The job is over and its nodes have gone: the last status, and nothing left behind."""
        raise NotImplementedError
