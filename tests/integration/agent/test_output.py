"""Floods, giant lines, binary, and readers that do not read: the files are complete and nobody waits."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading

from petctl.agent.logs.log_follow import LogFollower
from petctl.rendezvous.core.messages import SUCCEEDED
from tests.integration.agent.conftest import Bench, alive
from tests.integration.waiting import DEADLINE

FLOOD = """
import sys
for start in range(0, 1000000, 1000):
    sys.stdout.write("".join(f"line {n}\\n" for n in range(start, start + 1000)))
"""


def flood(bench: Bench) -> str:
    path = bench.directory / "flood.py"
    path.write_text(FLOOD)
    return str(path)


def test_a_million_lines_are_complete_and_are_followed_as_they_come(bench: Bench) -> None:
    bench.open("script", [flood(bench)], procs="2")
    bench.agent()
    lines = {0: 0, 1: 0}
    last = {}
    with LogFollower(str(bench.logs)) as follower:
        for chunk in follower.follow(bench.closed.is_set):
            lines[chunk.name.rank] += chunk.data.count(b"\n")
            last[chunk.name.rank] = chunk.data[-12:]
    assert bench.ended().state == SUCCEEDED
    assert lines == {0: 1_000_000, 1: 1_000_000}
    assert all(end.endswith(b"line 999999\n") for end in last.values())


def test_giant_lines_and_binary_survive_byte_for_byte(bench: Bench) -> None:
    program = (
        "import sys, hashlib, random\n"
        "data = b'x' * 10_000_000 + b'\\n' + random.Random(1).randbytes(3_000_000) + b'no newline at the end'\n"
        "sys.stdout.buffer.write(data); sys.stderr.write(hashlib.sha256(data).hexdigest() + '\\n')\n"
    )
    bench.open("program", [sys.executable, "-c", program])
    bench.agent()
    seen = hashlib.sha256()
    with LogFollower(str(bench.logs), accept=lambda name: name.stream == "out") as follower:
        for chunk in follower.follow(bench.closed.is_set):
            seen.update(chunk.data)
    wanted = bench.line(stream="err")
    assert hashlib.sha256(bench.log().read_bytes()).hexdigest() == wanted
    assert seen.hexdigest() == wanted


def test_a_grandchild_that_holds_stdout_open_delays_nobody(bench: Bench) -> None:
    bench.open("shell", ["sleep 600 & echo $!"])
    node = bench.agent()
    assert bench.ended().state == SUCCEEDED
    assert node.wait() == 0
    assert not alive(int(bench.line()))


def test_the_stream_has_every_line_with_its_rank(bench: Bench) -> None:
    bench.open("shell", ["for i in 1 2 3; do echo line $i; done; printf unfinished"], procs="2")
    node = bench.agent("--stream", stdout=subprocess.PIPE)
    out, _ = node.process.communicate(timeout=DEADLINE)
    lines = sorted(out.decode().splitlines())
    assert lines == sorted(
        f"[{rank}]: {text}" for rank in (0, 1) for text in ("line 1", "line 2", "line 3", "unfinished")
    )


def test_a_reader_that_does_not_read_blocks_nothing_and_learns_what_it_missed(bench: Bench) -> None:
    bench.open("script", [flood(bench)], procs="2")
    read, write = os.pipe()
    try:
        node = bench.agent("--stream", stdout=write)
        os.close(write)
        write = -1
        assert bench.ended().state == SUCCEEDED  # although nobody has read a byte
        assert bench.log(0).read_bytes().count(b"\n") == bench.log(1).read_bytes().count(b"\n") == 1_000_000
        taken = bytearray()
        reader = threading.Thread(target=lambda: taken.extend(_everything(read)))
        reader.start()
        assert node.wait() == 0
        reader.join(DEADLINE)
        shown = taken.count(b"\n")
        dropped = sum(
            int(line.split()[1])
            for line in bytes(taken).splitlines()
            if line.startswith(b"[petctl:") and b"dropped" in line
        )
        markers = sum(1 for line in bytes(taken).splitlines() if line.startswith(b"[petctl:"))
        assert dropped > 0 and shown - markers + dropped == 2_000_000
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def test_a_log_file_stays_within_its_limit_while_it_is_written(bench: Bench) -> None:
    cap = 8 << 20
    program = (
        "import os, time\n"
        "for n in range(12):\n"
        "    os.write(1, b'%2d ' % n + b'x' * ((4 << 20) - 4) + b'\\n')\n"
        "    time.sleep(0.5)\n"
    )
    bench.open("program", [sys.executable, "-c", program], log_cap=cap)
    bench.agent()
    assert bench.ended().state == SUCCEEDED
    status = bench.log().stat()
    assert status.st_size == 12 * (4 << 20)
    assert status.st_blocks * 512 < status.st_size - (8 << 20)
    with LogFollower(str(bench.logs), accept=lambda name: name.stream == "out") as follower:
        data = b"".join(chunk.data for chunk in follower.follow(lambda: True))
    assert data.startswith(b" 0 x") and b"bytes were dropped here to stay within log_cap]\n" in data
    assert b"\n11 x" in data and b"\0" not in data


def _everything(fd: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.read(fd, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
