"""Brings back threads that gloo has forgotten.

When a connection breaks, gloo tells the operations that wait for their turn on it, but not always those whose bytes
are just under way: who waits for such a one waits for the whole timeout of the group, half an hour. gloo has the calls
that end a wait (`abortWaitSend`, `abortWaitRecv`), torch offers no way to them, and the objects they must be called on
are known only to the waiting thread. So they are looked up where that thread keeps them: on its stack, recognised by
the table of methods that every object of their type points to.

Only for groups whose connections are cut: what the released operation leaves in its tensors is worth nothing. A thread
that comes back by itself frees those objects, so only one that has not stirred between two looks is touched. Where
something is missing (another torch, another system) nothing happens, and the agent ends a worker that does not park.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set, Tuple

BUFFER = "N4gloo9transport3tcp13UnboundBuffer"  # gloo::transport::tcp::UnboundBuffer, as compilers write it
DEPTH = 16 * 1024  # bytes of a waiting thread's stack; what it waits for is within the first two thousand
WORD = struct.calcsize("P")
PATIENCE = 1.0  # seconds
MOMENT = 0.002
Wait = Tuple[int, str, str]  # stack pointer, where in the kernel, how often it has gone to sleep


def let_go() -> None:
    """Waits until gloo's threads rest.

    They let go of a finished operation after everybody else has gone on, and need Python's lock for that. Who frees
    their group meanwhile, holding that lock, waits for ever; and at the interpreter's end they bring the process down.
    """
    before: Dict[str, Optional[Wait]] = {}
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        now = {task.name: _wait_of(task.name) for task in Path("/proc/self/task").iterdir() if _is_gloos(task)}
        if not now or (now == before and None not in now.values()):
            return
        before = now
        time.sleep(MOMENT)  # without the lock


class Waits:
    """What the threads of this process wait for."""

    def __init__(self) -> None:
        self._library: Any = None
        self._table = 0
        self._seen: Dict[str, Wait] = {}

    def release(self) -> int:
        """Ends the waits for gloo that have lasted since the last call; the answer is how many."""
        if not self._find_gloo():
            return 0
        before, self._seen = self._seen, dict(_waiting())
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            found = {
                task: self._buffers_on(memory.fileno(), wait[0])
                for task, wait in self._seen.items()
                if before.get(task) == wait
            }
        return sum(self._abort(buffer) for task, buffers in found.items() for buffer in buffers if self._asleep(task))

    def _find_gloo(self) -> bool:
        if self._library is None and "torch" in sys.modules:
            path = Path(sys.modules["torch"].__file__ or "").with_name("lib") / "libtorch_cpu.so"
            try:
                library = ctypes.CDLL(str(path))
                table = ctypes.addressof(ctypes.c_char.in_dll(library, f"_ZTV{BUFFER}E"))
            except (OSError, ValueError):
                return False
            self._library, self._table = library, table + 2 * WORD  # objects point behind its first two words
        return self._library is not None

    def _buffers_on(self, memory: int, stack: int) -> Set[int]:
        top = _read(memory, stack, DEPTH)
        words = {word for (word,) in struct.iter_unpack("P", top[: len(top) // WORD * WORD]) if word % WORD == 0}
        return {word for word in words if _read(memory, word, WORD) == struct.pack("P", self._table)}

    def _asleep(self, task: str) -> bool:
        return _wait_of(task) == self._seen[task]

    def _abort(self, buffer: int) -> bool:
        for name in ("abortWaitSend", "abortWaitRecv"):
            getattr(self._library, f"_Z{BUFFER}{len(name)}{name}Ev")(ctypes.c_void_p(buffer))
        return True


def _is_gloos(task: Path) -> bool:
    try:
        return (task / "comm").read_text() == "pt_gloo_runloop\n"
    except OSError:
        return False


def _waiting() -> Iterator[Tuple[str, Wait]]:
    for task in Path("/proc/self/task").iterdir():
        wait = _wait_of(task.name)
        if wait is not None:
            yield task.name, wait


def _wait_of(task: str) -> Optional[Wait]:
    """None: it runs, or it has ended."""
    try:
        call = Path(f"/proc/self/task/{task}/syscall").read_text().split()
        status = Path(f"/proc/self/task/{task}/status").read_text()
    except OSError:
        return None
    if len(call) < 3:
        return None
    return int(call[-2], 16), call[-1], status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0].strip()


def _read(memory: int, address: int, size: int) -> bytes:
    """What is there, as far as anything is."""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
