"""Which failure of a round is its root cause."""

from __future__ import annotations

from typing import Any

import pytest

from petctl import causes
from petctl.rendezvous.core import blame
from petctl.rendezvous.core.blame import OF_PEERS, OWN, UNCLEAR, origin, root_cause
from petctl.rendezvous.core.messages import Failure

GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"
NCCL = "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2356, ncclRemoteError"


def failed(code: int = 1, **fields: Any) -> Failure:
    return Failure("0", 0, 0, code, **fields)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (failed(message="ValueError: a label is out of range"), OWN),
        (failed(137, signal="SIGKILL", cause="killed"), OWN),
        (failed(139, signal="SIGSEGV", cause="segfault"), OWN),
        (failed(message=GLOO, cause="network"), OF_PEERS),
        (failed(message=NCCL, cause="nccl"), OF_PEERS),
        (failed(message="torch.distributed.DistNetworkError: Connection reset by peer", cause="network"), OF_PEERS),
        (failed(134, signal="SIGABRT", cause="nccl-timeout"), OF_PEERS),
        (failed(134, signal="SIGABRT", cause="aborted"), UNCLEAR),
        (failed(143, signal="SIGTERM", cause="terminated"), UNCLEAR),
        (failed(14), UNCLEAR),
        (failed(message="ConnectionRefusedError: the feature store is away", cause="network"), UNCLEAR),
        (failed(message=GLOO, hung=True), OWN),
        (failed(127, message="gloo is missing", lasting=True), OWN),
    ],
)
def test_what_a_failure_tells_of_its_origin(failure: Failure, expected: int) -> None:
    assert origin(failure) == expected


def test_the_first_own_failure_is_the_root_cause() -> None:
    first, second, third = failed(message=GLOO), failed(2, message="ValueError: a"), failed(3, message="KeyError: b")
    root, passed = root_cause([first, second, third])
    assert root is second
    assert "failed before it, but may only have lost a peer" in passed
    assert root_cause([second, first]) == (second, "")


def test_without_an_own_failure_the_least_clear_one_counts() -> None:
    abort = failed(134, signal="SIGABRT", cause="aborted")
    assert root_cause([failed(message=GLOO), abort])[0] is abort
    assert root_cause([failed(message=GLOO), failed(2, message=GLOO)])[0].code == 1


def test_the_causes_that_it_knows_exist() -> None:
    for name in (*blame._CAUSES_OF_PEERS, *blame._UNCLEAR_CAUSES):
        assert name in causes.known()
