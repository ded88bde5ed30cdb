"""What petctl writes while it follows a job: workers' lines, its own sentences, and one status line at the bottom.

Workers' stdout goes to stdout and their stderr to stderr, byte for byte, behind a rank prefix where there is more than
one worker. petctl's own words go to stderr only. On a terminal ranks have colours and the last line tells the state;
piped, it is plain bytes in large chunks.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import BinaryIO, Iterable, Iterator, Protocol, Sequence

from petctl.console.terminal import shown

_BEGIN = b"Traceback (most recent call last):"
_TORCH_PREFIX = re.compile(rb"(?m)^\[rank\d+\]: ?")  # torch.distributed puts it before each line of a traceback
_PLACE = b'  File "'  # where a script that cannot be compiled begins, without a traceback
_BEGIN_LINE = re.compile(
    rb"(?m)^(?:\[rank\d+\]: )?(?:" + re.escape(_BEGIN) + rb"|" + _PLACE + rb'[^"\n]+", line \d+)\r?\n'
)
_TRAILING = re.compile(r"[ \t\r]+\n")
_STORIES = 256  # that are remembered
_STORY = 1 << 14  # bytes of each
_TAIL = 1 << 14  # bytes of what a worker wrote last


class _Story:
    """A traceback that was shown, and what its worker wrote behind it in the same round."""

    def __init__(self, round_: int, rank: int) -> None:
        self.round, self.rank, self.text = round_, rank, b""
        self.begins: list[int] = []  # of each traceback in it

    def add(self, text: bytes) -> None:
        if len(self.text) < _STORY:
            self.text += _plain(text)[: _STORY - len(self.text)]
            if _may_begin(text):
                self.begins = [match.start() for match in _BEGIN_LINE.finditer(self.text)]


class _Worker:
    """One rank's stderr, in its present round."""

    def __init__(self) -> None:
        self.round = 0
        self.tail = b""  # what was shown last, in all rounds
        self.story: _Story | None = None
        self.matches: list[tuple[_Story, int]] = []  # what the text has repeated so far, and up to where
        self.held = b""  # the part of it that neither was shown nor is replaced by a notice yet
        self.replaced = False


class Repeats:
    """What the workers of one job wrote to stderr, round after round."""

    def __init__(self, name: Callable[[int], str] | None = None) -> None:
        """`name`: what to call a rank in a notice; without it there are no notices."""
        self._name = name
        self._workers: dict[int, _Worker] = {}
        self._stories: deque[_Story] = deque(maxlen=_STORIES)

    def filter(self, round_: int, text: bytes, rank: int = 0) -> bytes:
        """Gives what to show of this text."""
        worker = self._workers.setdefault(rank, _Worker())
        before = b""
        if round_ != worker.round:
            before = self._release(worker)
            worker.round, worker.story = round_, None
        if not worker.matches and not _may_begin(text):
            return before + self._show(worker, text, rank)
        return before + b"".join(self._line(worker, line, rank) for line in text.splitlines(keepends=True))

    def has_shown(self, words: str) -> bool:
        """Checks whether these lines were shown, of whatever worker."""
        texts = (*(story.text for story in self._stories), *(worker.tail for worker in self._workers.values()))
        return any(words in _TRAILING.sub("\n", _plain(text).decode(errors="replace")) for text in texts)

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Gives what is still held back at the end: rank, text."""
        for rank, worker in self._workers.items():
            text = self._release(worker)
            if text:
                yield rank, text

    def _line(self, worker: _Worker, line: bytes, rank: int) -> bytes:
        """Gives what to show of one line, or of a part of one."""
        shown = b""
        if worker.matches:
            plain = _plain(line)
            matches = [(story, at + len(plain)) for story, at in worker.matches if story.text.startswith(plain, at)]
            if matches:
                worker.matches = matches
                return self._repeated(worker, line, rank)
            shown = self._show(worker, self._release(worker), rank)
        if _BEGIN_LINE.match(line) and not (worker.story and _PLACE in line):  # there it ends a traceback
            plain = _plain(line)
            here = (worker.round, rank)
            known = [story for story in self._stories if (story.round, story.rank) != here]
            if self._name is None:  # nothing would say that another worker failed in the same way
                known = [story for story in known if story.rank == rank]
            worker.matches = [
                (story, begin + len(plain))
                for story in known
                for begin in story.begins
                if story.text.startswith(plain, begin)
            ]
            if worker.matches:
                worker.held, worker.replaced = line, False
                return shown
        return shown + self._show(worker, line, rank)

    def _repeated(self, worker: _Worker, line: bytes, rank: int) -> bytes:
        """Holds a line back that was shown before; gives the notice once the exception is named."""
        worker.held += line
        if not worker.held.endswith(b"\n"):
            return b""
        last = _plain(worker.held).splitlines()[-1]
        if worker.replaced:
            worker.held = b""
        elif last and not last[:1].isspace():
            worker.held, worker.replaced = b"", True
            return self._notice(worker, rank)
        return b""

    def _notice(self, worker: _Worker, rank: int) -> bytes:
        if self._name is None:
            return b""
        same = next((story for story, _ in worker.matches if story.rank == rank), worker.matches[0][0])
        whose = "" if same.rank == rank else f" {self._name(same.rank)}"
        when = "" if same.round == worker.round else f" in round {same.round}"
        line_break = b"" if worker.tail.endswith(b"\n") or not worker.tail else b"\n"
        return line_break + f"the same error as{whose}{when}\n".encode()

    def _show(self, worker: _Worker, text: bytes, rank: int) -> bytes:
        worker.tail = (worker.tail + text)[-_TAIL:]
        begin = None if worker.story else _BEGIN_LINE.search(text)
        if begin:
            worker.story = _Story(worker.round, rank)
            self._stories.append(worker.story)
        if worker.story:
            worker.story.add(text[begin.start() :] if begin else text)
        return text

    @staticmethod
    def _release(worker: _Worker) -> bytes:
        held, worker.held, worker.matches = worker.held, b"", []
        return held


def _may_begin(text: bytes) -> bool:
    return _BEGIN in text or _PLACE in text


def _plain(text: bytes) -> bytes:
    return _TORCH_PREFIX.sub(b"", text) if b"[rank" in text else text


_COLOURS = (36, 33, 32, 35, 34, 91, 92, 93, 94, 95, 96)
_ERASE = b"\r\x1b[2K"
_RETURN = re.compile(rb"\r+(?![\r\n]|\Z)")  # one that a line goes on behind
_stream, _text = attrgetter("stream"), attrgetter("text")


class Line(Protocol):
    """What a worker wrote, as `petctl.clusters.base.LogLine` has it."""

    @property
    def round(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def text(self) -> bytes: ...


class Screen:
    """One terminal, or one pair of pipes. Written to by one thread."""

    def __init__(
        self,
        prefix: bool,
        output: BinaryIO | None = None,
        quiet: bool = False,
        names: Sequence[str] = (),
        verbatim: bool = False,
    ) -> None:
        """`names`: what ranks are called, where they have names. `verbatim`: shows the same traceback every time."""
        self.prefix, self.quiet, self._names, self._verbatim = prefix, quiet, names, verbatim
        self._out = output or sys.stdout.buffer
        self._err = sys.stderr.buffer
        self._terminal = {"out": self._out.isatty(), "err": self._err.isatty()}
        dumb = os.environ.get("TERM", "") == "dumb"
        coloured = "NO_COLOR" not in os.environ and not dumb
        self._colour = {stream: terminal and coloured for stream, terminal in self._terminal.items()}
        self.live = self._err.isatty() and not dumb and not quiet
        self._status = ""
        self._repeats = Repeats(self._rank_name if prefix else None)
        self._shown = False
        self._mid_line = False  # the terminal's cursor stands behind a worker's unfinished line
        self._prefixes: dict[tuple[str, int], bytes] = {}
        # stream -> (round, rank) whose line has no end yet, and whether it goes on at the line's beginning
        self._unfinished: dict[str, tuple[tuple[int, int], bool]] = {}

    def lines(self, lines: Iterable[Line]) -> None:
        """Writes a batch of workers' lines; consecutive ones of a stream leave in one write."""
        self._hide()
        shape = self._prefixed if self.prefix else self._unchanged
        for stream, group in groupby(lines, key=_stream):
            parts = list(shape(stream, group))
            self._write(self._err if stream == "err" else self._out, b"".join(parts))
            last = next((part for part in reversed(parts) if part), b"\n")
            if self._terminal[stream]:
                self._mid_line = not last.endswith(b"\n")
        self._show()

    def say(self, sentence: str) -> None:
        """One of petctl's own sentences."""
        if not self.quiet:
            self._tell(f"petctl: {sentence}", "2")

    def complain(self, sentence: str) -> None:
        """A sentence that is an error: quiet or not."""
        self._tell(f"petctl: {sentence}", "31")

    def status(self, text: str) -> None:
        """Replaces the status line; only on a terminal."""
        if self.live and shown(text) != self._status:
            self._hide()
            self._status = shown(text)
            self._show()

    def close(self) -> None:
        """Takes the status line away for good."""
        self._hide()
        for rank, text in self._repeats.rest():
            whole = text if text.endswith(b"\n") else text + b"\n"
            prefix = self._make_prefix("err", rank) if self.prefix else b""
            self._break_line()
            self._write(self._err, prefix + whole[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
        self._break_line()
        self._status = ""

    def _tell(self, text: str, style: str) -> None:
        self._hide()
        self._break_line()
        text = shown(text) if self._terminal["err"] else text
        self._write(self._err, (f"\x1b[{style}m{text}\x1b[0m\n" if self._colour["err"] else f"{text}\n").encode())
        self._show()

    def _show(self) -> None:
        if self._status and not self._shown and not self._mid_line:
            width = max(10, shutil.get_terminal_size().columns - 1)
            text = self._status[:width]
            self._write(self._err, (f"\x1b[2m{text}\x1b[0m" if self._colour["err"] else text).encode())
            self._shown = True

    def _hide(self) -> None:
        if self._shown:
            self._write(self._err, _ERASE)
            self._shown = False

    def _break_line(self) -> None:
        if self._mid_line:
            self._write(self._err if self._terminal["err"] else self._out, b"\n")
            self._mid_line = False
            self._unfinished.clear()

    def _unchanged(self, stream: str, lines: Iterable[Line]) -> Iterator[bytes]:
        if stream != "err" or self._verbatim:
            return map(_text, lines)
        return (self._repeats.filter(line.round, line.text, line.rank) for line in lines)

    def has_shown(self, words: str) -> bool:
        """Checks whether a worker's lines are on the screen already."""
        return self._repeats.has_shown(words)

    def _prefixed(self, stream: str, lines: Iterable[Line]) -> Iterator[bytes]:
        """Each line behind its rank; never two workers' words on one line. A text may hold many lines at once.

        A carriage return, with which progress bars write over their line, goes back over the prefix too.
        """
        prefixes, unfinished = self._prefixes, self._unfinished
        for line in lines:
            prefix = prefixes.get((stream, line.rank)) or self._make_prefix(stream, line.rank)
            text, whose = line.text, (line.round, line.rank)
            if stream == "err" and not self._verbatim:
                text = self._repeats.filter(line.round, text, line.rank)
                if not text:
                    continue
            before, returned = unfinished.pop(stream, (None, True))
            if before is not None and before != whose:
                yield b"\n"
                returned = True
            if returned:
                text = text.lstrip(b"\r")
                if not text:  # nothing to see yet
                    if before == whose:
                        unfinished[stream] = (whose, True)
                    continue
                yield prefix
            if b"\r" in text:
                text = _RETURN.sub(b"\r" + prefix, text)
            yield text[:-1].replace(b"\n", b"\n" + prefix)
            yield text[-1:]
            if not text.endswith(b"\n"):
                unfinished[stream] = (whose, text.endswith(b"\r"))

    def _rank_name(self, rank: int) -> str:
        return self._names[rank] if rank < len(self._names) else f"rank {rank}"

    def _make_prefix(self, stream: str, rank: int) -> bytes:
        text = f"[{self._names[rank] if rank < len(self._names) else rank}] "
        text = shown(text) if self._terminal[stream] else text
        if self._colour[stream]:
            text = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m"
        prefix = self._prefixes[stream, rank] = text.encode()
        return prefix

    @staticmethod
    def _write(stream: BinaryIO, data: bytes) -> None:
        stream.write(data)
        stream.flush()
