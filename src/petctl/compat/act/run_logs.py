"""A run's logs, brought into the files that ACT's users open.

    ASSETS/RUN/azureml-logs/
        70_driver_log_rank_0.txt          what rank 0 has written to stdout
        70_driver_log_rank_0.err.txt      ... and to stderr, where there is anything
        70_driver_log_rank_0_round_1.txt  the same of an earlier round: the newest one has the plain names
        60_mpirun.err.txt                 what mpirun itself said in the newest round, where it said anything
        55_prepare-0.txt                  what made node 0 ready
        log_status.yaml                   how far all that goes

ACT has both streams in one file. Workers write them apart, and nobody knows their common order: so they stay apart
here, and only `last_lines` shows them one after the other, with stderr last, where the reason of a failure is.

Where a run's logs are files of this machine, only what is new is read; elsewhere the cluster tells them anew, and what
it has lost meanwhile stays here. A run that has ended is brought once. Whether a run went well is not known here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.agent.logs.log_files import LogName, list_logs, parse_round, read_end
from petctl.compat.act.run_facts import STATUS
from petctl.errors import NoRoom, PetctlError, UsageError, is_no_room
from petctl.files import hold, release, replace
from petctl.rendezvous.core.decide import natural

if TYPE_CHECKING:
    from petctl.clusters.base import LogLine
    from petctl.jobs import JobHandle, Status

FOLDER = "azureml-logs"
STATUS_FILE = "log_status.yaml"
LAST = 100  # lines that a query shows
END = 100 << 10  # bytes of each log, where only the end is wanted
END_LINES = 1000  # the same where a cluster counts lines
MOST_SHOWN = 2 << 20  # bytes of a log's end in which its last lines are looked for
MOST_WAITING = 4 << 20  # bytes that are gathered before they are written
_LOGS = "70_driver_log_rank_*.txt"
_OTHERS = ("60_mpirun*.txt", "55_prepare-*.txt")  # what is no worker's


def log_folder() -> Path:
    """Where the logs of runs are brought to."""
    return Path(os.environ.get("AML_LOG_FOLDER") or "assets")


def fetch(handle: JobHandle, assets: Path, full: bool = True) -> list[Path]:
    """Brings what is new of a run's logs; the files there are then, rank 0's first. Without `full` only the end of each
    log, unless there is more of it here already."""
    folder = Path(assets).absolute() / handle.id / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            status = handle.status()  # before the logs: what an ended run has written is there by now
            copies = _Copies(folder, status, full)
            if not copies.complete:
                logs = Path(status.directory, "logs") if status.directory else None
                if logs is not None and logs.is_dir():
                    copies.from_files(logs)
                else:
                    copies.from_lines(handle.logs(tail=None if copies.whole else END_LINES, blocks=True))
                copies.keep()
            return copies.paths()
    except PetctlError:
        raise
    except OSError as error:
        if is_no_room(error):
            raise NoRoom(
                f"no space for the logs of {handle.id} on the disk of {folder}; free some space there"
            ) from None
        raise UsageError(
            f"cannot write the logs of {handle.id} to {folder}: {error.strerror}; "
            "set AML_LOG_FOLDER to a directory of your own"
        ) from None


def last_lines(paths: Sequence[Path], count: int = LAST) -> list[str]:
    """The end of the first log of a list that `fetch` gave: rank 0's stdout, then its stderr. One that has little to
    say leaves its lines to the other."""
    out = _end_of(paths[0], count) if paths else []
    beside = paths[1] if len(paths) > 1 and paths[1].name == f"{paths[0].stem}.err.txt" else None
    err = _end_of(beside, count) if beside is not None else []
    room = max(count // 2, count - len(out))
    err = err[max(0, len(err) - room) :]
    return out[max(0, len(out) - (count - len(err))) :] + err


def _end_of(path: Path, count: int) -> list[str]:
    data = read_end(str(path), MOST_SHOWN)
    lines = data.decode(errors="replace").removesuffix("\n").split("\n") if data else []
    # A progress bar is one line that was written again and again: what a terminal would show of it at last.
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines[max(0, len(lines) - count) :]]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two queries of one run at the same time take turns."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        hold(descriptor)
        yield
    finally:
        release(descriptor)


class _Copies:
    """The files of one run, and how far they go: for each log the bytes read there and the bytes kept here."""

    def __init__(self, folder: Path, status: Status, full: bool) -> None:
        self._folder, self._status = folder, status
        said = _read_status(folder / STATUS_FILE)
        if said.get("submitted") != status.submitted:  # of another run that had this id
            said = {}
        self._logs, self._round, self._was = _logs_of(said), int(said.get("round", 0)), str(said.get("status", ""))
        here_whole = bool(said.get("is_full") and self._logs)
        self.whole = full or here_whole
        self.complete = bool(said.get("ended")) and (here_whole or not full) and self._are_there()
        if not self.complete and not here_whole:  # the ends of logs are brought anew each time
            self._logs, self._round = {}, 0
            self._remove_all()

    # -- bringing ------------------------------------------------------------------------------------------------------

    def from_files(self, logs: Path) -> None:
        """What is new in the log files of this machine."""
        from petctl.agent.logs.log_follow import LogFollower

        found = [name for name, _ in list_logs(str(logs))]
        self._turn_to(max((name.round for name in found), default=0))
        with LogFollower(str(logs), begin=self._begin, accept=set(found).__contains__) as follower:
            for name, data in follower.read(final=True):
                with self.path(name).open("ab") as file:
                    file.write(data)
                self._logs[name] = (follower.position(name), self._logs.get(name, (0, 0))[1] + len(data))
        for name in found:
            if name.stream == "out" and name not in self._logs:  # it has said nothing, and that is something to know
                self.path(name).touch()
                self._logs[name] = (0, 0)
        for source, target in self._others(logs):
            there, here = source.stat(), target.stat() if target.exists() else None
            if here is None or here.st_size != there.st_size or here.st_mtime < there.st_mtime:
                shutil.copyfile(source, target)

    def from_lines(self, lines: Iterable[LogLine]) -> None:
        """All that a cluster tells; what it does not have any more is kept."""
        drafts = self._folder / ".new"
        shutil.rmtree(drafts, ignore_errors=True)
        drafts.mkdir()
        try:
            for name in _written(lines, drafts):
                self._logs.setdefault(name, (0, 0))
            self._turn_to(max((name.round for name in self._logs), default=0))
            for name, (_, kept) in list(self._logs.items()):
                draft, target = drafts / _key(name).replace("/", "-"), self.path(name)
                size = draft.stat().st_size if draft.exists() else -1
                if size >= kept or (size >= 0 and not target.exists()):
                    draft.replace(target)
                    self._logs[name] = (size, size)
                elif not target.exists():
                    del self._logs[name]
        finally:
            shutil.rmtree(drafts, ignore_errors=True)

    def keep(self) -> None:
        """Writes down how far the files go."""
        self._write(STATUS[self._status.state], self._status.final)

    # -- looking -------------------------------------------------------------------------------------------------------

    def path(self, name: LogName) -> Path:
        """Where a log is kept."""
        earlier = "" if name.round == self._round else f"_round_{name.round}"
        stream = ".err" if name.stream == "err" else ""
        return self._folder / f"70_driver_log_rank_{name.rank}{earlier}{stream}.txt"

    def paths(self) -> list[Path]:
        """Those of the newest round by rank, then of earlier ones, then what is no worker's."""
        names = sorted(self._logs, key=lambda name: (-name.round, name.rank, name.stream != "out"))
        others = [sorted(self._folder.glob(pattern), key=_own_first) for pattern in _OTHERS]
        return [*map(self.path, names), *(path for paths in others for path in paths)]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin(self, name: LogName, source: str) -> int:
        """From which byte a log is to be read; its file ends there then, also where a killed query had written on."""
        target = self.path(name)
        read, kept = self._logs.pop(name, (0, 0))
        if not target.exists() or target.stat().st_size < kept:
            read = kept = 0
        if target.exists():
            os.truncate(target, kept)
            self._logs[name] = (read, kept)
        return read if self.whole else _near_the_end(source)

    def _others(self, logs: Path) -> Iterator[tuple[Path, Path]]:
        """What preparation and mpirun have written, and where that is kept."""
        for source in logs.glob("prepare-*.out"):
            yield source, self._folder / f"55_{source.stem}.txt"
        newest = max(logs.glob("round-*"), key=lambda path: parse_round(path.name) or 0, default=logs)
        for source in newest.glob("launcher*"):
            stream = ".err" if source.suffix == ".err" else ""
            target = self._folder / f"60_mpirun{source.stem.removeprefix('launcher')}{stream}.txt"
            if source.stat().st_size or target.exists():  # what it said in an earlier round is not true any more
                yield source, target

    def _turn_to(self, newest: int) -> None:
        """The files of the round that was the newest get names with its number."""
        if newest <= self._round:
            return
        before = [(name, self.path(name)) for name in self._logs if name.round == self._round]
        self._round = newest
        for name, path in before:
            with suppress(FileNotFoundError):
                path.replace(self.path(name))
        if before:  # at once: killed right after this, the next query must not move the newest files
            self._write(self._was, ended=False)

    def _write(self, status: str, ended: bool) -> None:
        import yaml

        logs = {_key(name): list(numbers) for name, numbers in sorted(self._logs.items())}
        said = {"status": status, "is_full": self.whole, "ended": ended, "round": self._round}
        text = yaml.safe_dump({**said, "submitted": self._status.submitted, "logs": logs}, sort_keys=False)
        replace(self._folder / STATUS_FILE, text, draft=self._folder / f".{STATUS_FILE}")

    def _are_there(self) -> bool:
        kept = {self.path(name): size for name, (_, size) in self._logs.items()}
        return all(path.exists() and path.stat().st_size >= size for path, size in kept.items())

    def _remove_all(self) -> None:
        for pattern in (_LOGS, *_OTHERS):
            for path in self._folder.glob(pattern):
                path.unlink()


def _read_status(path: Path) -> dict[str, Any]:
    """What was written down; nothing where it is missing, or no longer what petctl wrote."""
    import yaml

    try:
        said = dict(yaml.safe_load(path.read_text()) or {})
        _logs_of(said)
        int(said.get("round", 0))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return said


def _logs_of(said: dict[str, Any]) -> dict[LogName, tuple[int, int]]:
    found = {}
    for key, (read, kept) in said["logs"].items() if said else ():
        number, rank, stream = key.split("/")
        found[LogName(int(number), int(rank), stream)] = (int(read), int(kept))
    return found


def _own_first(path: Path) -> tuple[bool, Any]:
    """mpirun before its daemons, nodes by their numbers."""
    return "-" in path.name, natural(path.name)


def _key(name: LogName) -> str:
    return f"{name.round}/{name.rank}/{name.stream}"


def _near_the_end(path: str) -> int:
    """Where the last stretch of a log begins, at the beginning of a line."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if size <= END:
            return 0
        file.seek(size - END)
        file.readline(END)
        return file.tell()


def _written(lines: Iterable[LogLine], folder: Path) -> list[LogName]:
    """Writes lines into a file for each log, in big pieces: there may be more logs than a process can have open."""
    names, size = dict[LogName, None](), 0
    waiting: dict[LogName, list[bytes]] = {}

    def write() -> None:
        for name, texts in waiting.items():
            with (folder / _key(name).replace("/", "-")).open("ab") as file:
                file.write(b"".join(texts))
        waiting.clear()

    for line in lines:
        name = LogName(line.round, line.rank, line.stream)
        names[name] = None
        waiting.setdefault(name, []).append(line.text)
        size += len(line.text)
        if size >= MOST_WAITING:
            write()
            size = 0
    write()
    return list(names)
