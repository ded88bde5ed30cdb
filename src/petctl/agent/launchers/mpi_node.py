"""A node's part in an MPI job: the first node runs mpirun, the others do what it wants of them.

    node 0   mpirun --starts--> ranks, each by way of a script (`mpi_rank.py`)
               `--for another host it runs the program `launch`, which asks this node's agent through the FIFO
    agent    --letter, by way of the coordinator--> the agent of that node, which starts mpirun's daemon and answers
    node K   daemon --starts--> ranks

Whoever writes a letter repeats it until it is answered, whatever becomes of the coordinator meanwhile; whoever gets it
acts once. How processes are stopped is `workers.py`; what their ends mean for the round, the agent.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from petctl.agent.health.root_cause import cause_of, from_stderr, signal_name
from petctl.agent.launchers import mpi
from petctl.agent.launchers.launchers import Launcher, comes_again, why_not_started
from petctl.agent.launchers.mpi_round import MpiRound
from petctl.agent.launchers.mpirun_errors import read_words
from petctl.agent.logs.log_files import log_file, read_end
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.workers import Launch, Worker, Workers
from petctl.errors import PetctlError, UsageError
from petctl.job.task import Task
from petctl.rendezvous.core.messages import Failure

_REPEAT = 1.0  # seconds until a letter that nobody has answered is sent again
_WORDS = 65536  # bytes of what mpirun said
_OTHERS_FIRST = 1.0  # seconds that a failure of mpirun waits for whoever knows its cause better: the node of a rank
_MPIRUN_FIRST = 5.0  # seconds that the good end of its daemon waits for mpirun's own, where it came too early


class MpiNode(Launcher):
    """Lives in the agent's loop and never waits."""

    early = False  # its ranks are mpirun's

    def __init__(
        self,
        directory: str,
        workers: Workers,
        send: Callable[[Mapping[str, Any]], None],
        fail: Callable[..., None],
        ended: Callable[[Optional[Failure]], None],
    ) -> None:
        self._private, self._workers, self._send, self._fail, self._ended = directory, workers, send, fail, ended
        self._loop = asyncio.get_running_loop()
        self._round: Optional[MpiRound] = None
        self._log_dir = ""
        self._fifo = -1
        self._heard = b""
        self._letters: Dict[str, Dict[str, Any]] = {}  # that nobody has answered
        self._timer: Optional[asyncio.TimerHandle] = None
        self._early: List[Dict[str, Any]] = []  # of other nodes, for a round that does not run here yet
        self._known: Set[str] = set()  # ids of those that were acted on, or will be
        self._waited = False  # does mpirun wait for the daemon of this node?
        self._gates: Dict[int, int] = {}  # rank of a node whose daemon has ended -> the FIFO in which that was said

    def offer(self, task: Task, node: str, address: str, procs: int) -> str:
        """Which host it will be."""
        return mpi.offer(address, procs, node)

    # -- a round -----------------------------------------------------------------------------------------------------

    def plan(self, task: Task, context: RoundContext, inherited: Mapping[str, str], log_dir: str) -> List[Launch]:
        """The ranks of this node and, on the first one, mpirun; UsageError says why it cannot be."""
        self.end()
        self._log_dir = log_dir
        planned = MpiRound(task, context, inherited, log_dir, self._private)
        try:
            planned.make_files()
            self._fifo = os.open(planned.fifo, os.O_RDWR | os.O_NONBLOCK)  # a writer never waits for a reader
        except OSError as error:
            kind = UsageError if comes_again(error) else PetctlError
            raise kind(f"cannot make {error.filename}, which mpirun needs: {error.strerror}") from None
        self._loop.add_reader(self._fifo, self.hear)
        self._round = planned
        return [*planned.ranks(), *([planned.mpirun()] if planned.leads else [])]

    def begun(self) -> None:
        """What other nodes have asked for already can be done."""
        early, self._early = self._early, []
        for letter in early:
            self._start_daemon(letter)

    def end(self) -> None:
        """Nobody is heard any more."""
        if self._fifo >= 0:
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
        for gate in self._gates.values():
            os.close(gate)
        self._gates.clear()
        self._fifo, self._heard, self._round = -1, b"", None
        self._letters.clear()

    def hear(self) -> None:
        """Takes in what ranks and mpirun have written to the FIFO."""
        while self._fifo >= 0:
            try:
                data = os.read(self._fifo, 65536)
            except BlockingIOError:
                return
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                self._take(line.decode("ascii", "replace").split())

    def _take(self, words: List[str]) -> None:
        current = self._round
        if current is None or len(words) < 3 or words[0] != str(current.number):
            return
        what, rest = words[1], words[2:]
        if what == "launch":
            self._ask(current, rest[0])
        elif not all(word.isdigit() for word in rest):
            return  # a rank without the variables that MPI gives to it
        elif what == "begin" and len(rest) == 3:
            local_rank, rank, pid = map(int, rest)
            self._workers.foreign_began(current.rank(local_rank, rank), pid)
        elif what == "end" and len(rest) == 2:
            local_rank, code = map(int, rest)
            self._workers.foreign_ended(local_rank, 128 - code if 128 < code < 193 else code)

    # -- daemons on other nodes --------------------------------------------------------------------------------------

    def _ask(self, current: MpiRound, name: str) -> None:
        """mpirun wants a line run on another host."""
        try:
            with open(os.path.join(current.directory, os.path.basename(name)), encoding="utf-8") as file:
                host, _, line = file.read().partition(" ")
        except (OSError, ValueError):
            return  # mpirun did not write that
        rank = mpi.rank_of(host)
        if rank is None or rank >= len(current.hosts):
            self._fail(f"mpirun tried to start a process on {host}, which is not a node of this job")
            return
        self._write_letter(current, rank, name, line=line.strip(), waits=current.hydra)

    def _write_letter(self, current: MpiRound, rank: int, name: str, **words: Any) -> None:
        key = f"{current.number}/{name}"
        self._letters[key] = {"round": current.number, "to": rank, "id": key, **words}
        self._send({"letter": self._letters[key]})
        self._arm()

    def repeat(self) -> None:
        """Unanswered letters; also when time has passed."""
        for letter in self._letters.values():
            self._send({"letter": letter})
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_REPEAT, self.repeat) if self._letters else None

    def receive(self, letter: object) -> None:
        """One of another node's agent: a line to run, or the answer to ours."""
        if not isinstance(letter, dict):
            return
        number, key, line = letter.get("round"), letter.get("id"), letter.get("line")
        if not isinstance(number, int) or not isinstance(key, str):
            return
        if letter.get("done"):
            self._letters.pop(key, None)
            return
        self._send({"letter": {"round": number, "to": letter.get("from"), "id": key, "done": True}})
        if isinstance(letter.get("over"), int):
            self._open_gate(letter)
        if not isinstance(line, str) or letter.get("from") != 0 or key in self._known:
            return  # only the first node has a mpirun, and it asks once
        self._known.add(key)
        if self._round is not None and self._round.number == number:
            self._start_daemon(letter)
        else:
            self._early.append(letter)

    def _start_daemon(self, letter: Mapping[str, Any]) -> None:
        current = self._round
        if current is None or current.number != letter["round"]:
            return
        self._waited = letter.get("waits") is True
        daemon = current.daemon(letter["line"])
        try:
            self._workers.add([daemon])
        except OSError as error:
            self._fail(why_not_started(error, [daemon]), lasting=comes_again(error))

    def _open_gate(self, letter: Mapping[str, Any]) -> None:
        current, rank = self._round, letter.get("from")
        if current is None or current.number != letter["round"] or not current.hydra or rank in self._gates:
            return
        assert isinstance(rank, int)
        self._gates[rank] = os.open(current.gate(rank), os.O_RDWR | os.O_NONBLOCK)
        os.write(self._gates[rank], b"%d\n" % (letter["over"] & 255))

    # -- ends --------------------------------------------------------------------------------------------------------

    def launcher_ended(self, worker: Worker) -> None:
        """mpirun has, or its daemon. Its failure may only follow from that of a rank on another node."""
        self.hear()
        current = self._round
        if current is None:
            return
        if not current.leads and self._waited:
            self._write_letter(current, 0, f"over-{current.node_rank}", over=worker.code)
        if worker.code == 0 and not self._workers.running:
            self._ended(None)
        else:
            wait = 0.0 if len(current.hosts) == 1 else _MPIRUN_FIRST if worker.code == 0 else _OTHERS_FIRST
            self._loop.call_later(wait, self._ended_early, worker)

    def _ended_early(self, worker: Worker) -> None:
        current = self._round
        if worker.code == 0 and not self._workers.running:
            return  # its ranks have ended well since
        if current is not None and current.number == worker.launch.round and not self._workers.stopping:
            self._ended(self._explain(current, worker))

    def _explain(self, current: MpiRound, worker: Worker) -> Failure:
        """Why mpirun or its daemon ended too early: a rank that it names, or its own words."""
        code, node = worker.code or 1, current.hosts[current.node_rank].node
        who = "mpirun" if current.leads else "mpirun's daemon"
        if worker.code == 0:
            sentence = f"{who} ended before all ranks of this node had"
            return Failure(node, current.first, 0, code, "", sentence, time=time.time())
        data = read_end(worker.launch.err, _WORDS)
        blame = read_words(data.decode("utf-8", "replace"), code)
        said = mpi.with_node_names(blame.story, current.hosts)
        if blame.rank is None:
            message = blame.message or from_stderr(data, killed=worker.signal != 0)[0]
            message = mpi.with_node_names(message, current.hosts)
            name = signal_name(worker.signal) if worker.signal else ""
            sentence = message if message.startswith("mpirun") else f"{who}: {message}" if message else f"{who} ended"
            cause = cause_of(code, name, sentence, said)
            return Failure(node, current.first, 0, code, name, sentence, said, time.time(), cause=cause)
        own = read_end(log_file(self._log_dir, current.number, blame.rank, "err"), _WORDS)
        message, story = from_stderr(own, killed=blame.signal != 0)
        where, local_rank = current.whose(blame.rank)
        name = signal_name(blame.signal) if blame.signal else ""
        words = (message or blame.message, story or said)
        cause = cause_of(blame.code, name, *words, own)
        return Failure(where, blame.rank, local_rank, blame.code, name, *words, time.time(), cause=cause)
