"""Families of processes, from a table; and markers, from real environments."""

from __future__ import annotations

import os
import subprocess
import sys

from petctl.agent.workers.processes import Process, carrying, descendants, extinguish, table


def test_descendants_are_all_below_and_nobody_else() -> None:
    rows = [
        Process(1, 0, 1, 1),
        Process(10, 1, 10, 10),
        Process(11, 10, 10, 10),
        Process(12, 11, 12, 12),
        Process(20, 1, 20, 20),
    ]
    processes = {row.pid: row for row in rows}
    assert descendants(10, processes) == {11, 12}
    assert descendants(20, processes) == set()
    assert descendants(1, processes) == {10, 11, 12, 20}


def test_a_name_with_spaces_and_parentheses_does_not_confuse_the_table() -> None:
    program = "open('/proc/self/comm', 'w').write('a) Z 1 (b'); print('up', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"up\n"
            assert table()[child.pid] == Process(child.pid, os.getpid(), os.getpgid(0), os.getsid(0))
        finally:
            child.kill()


def test_markers_and_the_end_of_those_that_carry_one() -> None:
    key = f"PETCTL_TEST_KEY=job/{os.urandom(4).hex()}"
    name, value = key.split("=")
    argv = [sys.executable, "-c", "print('up', flush=True); input()"]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, env={**os.environ, name: value}, **options) as child:  # type: ignore[call-overload]
        try:
            child.stdout.readline()
            assert carrying(key, table()) == {child.pid}
            assert carrying(f"{name}={value[3:]}", table(), tail=True) == {child.pid}
            assert carrying(f"{name}={value[3:]}", table()) == set()
            assert extinguish(lambda: carrying(key, table()), 10.0) == set()
            assert child.wait(10) == -9
        finally:
            child.kill()


def test_what_cannot_be_ended_is_named() -> None:
    assert extinguish(lambda: {2**22 + 1}, 0.05) == {2**22 + 1}
