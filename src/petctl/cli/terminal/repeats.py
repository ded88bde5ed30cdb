"""Shows each traceback once, however many workers and rounds of a job end with it.

A traceback that is line for line one that was shown becomes a single line (`the same error as in round 1`), written
as soon as its exception is there; the same lines that follow it are dropped as well. Text is held back only while it
may still be such a traceback. The job's only worker gets no such line: an event tells of each of its failures.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator

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
