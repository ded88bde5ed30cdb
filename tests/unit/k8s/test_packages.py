"""What is missing is named, with what to do about it."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.k8s.cluster import packages
from tests.k8s.cluster.failure import ClusterError


@pytest.fixture(autouse=True)
def neither_runc_nor_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = ("runc", "apt-get")
    monkeypatch.setattr(shutil, "which", lambda program, path=None: None if program in absent else "/bin/program")


def test_without_root_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"needs root.*missing too: runc"):
        packages.require()


def test_where_nothing_can_be_installed_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert packages.missing() == ["runc"]
    with pytest.raises(ClusterError, match="missing: runc"):
        packages.require()
