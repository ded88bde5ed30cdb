"""A cluster's ledger: what it ends is what it started, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.k8s.cluster import fall, ledger
from tests.k8s.cluster.ledger import Ledger, Process
from tests.k8s.cluster.waiting import until


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.open_new(tmp_path / "state")


def noted(book: Ledger, *processes: Process | None) -> None:
    book.record.processes = [process for process in processes if process is not None]
    book.write()


def test_a_record_survives(book: Ledger) -> None:
    book.record.links = ["petctl-test"]
    noted(book, ledger.described("self", os.getpid()))
    read = Ledger.read(book.directory)
    assert read is not None and read.record == book.record


def test_without_a_record_there_is_none(tmp_path: Path) -> None:
    assert Ledger.read(tmp_path / "state") is None


def test_a_living_process_is_known_by_number_and_start(book: Ledger) -> None:
    own = ledger.described("self", os.getpid())
    assert own is not None
    noted(book, own, Process("other", own.pid, own.start + 1))
    assert book.living() == [own]


def test_after_another_boot_nothing_of_it_lives(book: Ledger) -> None:
    noted(book, ledger.described("self", os.getpid()))
    book.record.boot = "another"
    assert book.living() == []


def test_a_process_that_was_not_written_down_is_known_by_its_mark(book: Ledger) -> None:
    environment = os.environ | {ledger.MARK: book.record.id}
    with subprocess.Popen(["sleep", "60"], env=environment) as unknown:
        try:
            living = until(book.living, "the kernel shows its environment")  # a moment after its start
            assert [process.pid for process in living] == [unknown.pid]
        finally:
            unknown.kill()
    assert book.living() == []


def test_down_ends_what_it_started_and_not_who_got_its_number_later(book: Ledger) -> None:
    with subprocess.Popen(["sleep", "60"]) as started, subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            known = ledger.described("bystander", bystander.pid)
            assert known is not None
            noted(book, ledger.described("started", started.pid), Process("earlier", known.pid, known.start - 1))
            assert fall.take_down(book.directory)
            assert started.wait(timeout=60) != 0
            assert bystander.poll() is None
            assert fall.remains(book) == []
        finally:
            started.kill()
            bystander.kill()


def test_down_of_a_cluster_that_had_not_begun_removes_its_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    assert fall.take_down(state)
    assert not state.exists()
    assert not fall.take_down(state)
