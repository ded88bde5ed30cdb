"""The servers of these tests: on ports of their own, and missing in silence only where somebody works by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.storage.conftest import running
from tests.integration.storage.servers import Missing, free_ports


class Absent:
    def __init__(self, folder: Path) -> None:
        raise Missing("npm is missing")


def test_a_missing_server_fails_where_everything_must_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="npm is missing"):
        next(running(Absent, tmp_path_factory))
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="npm is missing"):
        next(running(Absent, tmp_path_factory))


def test_ports_are_different_and_none_that_the_kernel_hands_out() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(50):
        ports = free_ports(8)
        assert len(set(ports)) == 8
        assert max(ports) < first
