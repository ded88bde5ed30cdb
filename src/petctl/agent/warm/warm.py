"""Warm starts on this node: what is known about the script's imports, and the zygote that has made them already.

    begin(launch, preload)     the job is known: if its imports are too, a zygote makes them while the node joins
    takes(launch)              can this worker be forked rather than started?
    fork(launch, out, err, birth)
    observed(launch)           the environment for a worker that is started, such that its imports become known

Nothing is known: the first workers are started as ever, one of them notes what it imports, and a zygote begins to
import the same as soon as they are done with it. From then on workers are forked; a list that is being imported is
waited for, because the workers would have to import the same. Whatever goes wrong here is said once, and means
that workers are started cold.

It must not know about rounds or ranks, nor start or stop workers: that is workers.py.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set

from petctl.agent.warm import startup, zygote
from petctl.agent.warm.import_notes import Notes
from petctl.agent.warm.preloads import Preloads, digest_of, path_of
from petctl.agent.warm.zygote import SpawnRequest, Zygote
from petctl.agent.workers.environment import ROUND_NAMES

if TYPE_CHECKING:
    from petctl.agent.workers.spawn import Launch

_QUIET = 2.0  # seconds without a new module: the workers have started up
_LEARNING = 130.0  # seconds; a little longer than workers note their imports
_PATIENCE = 300.0  # seconds for a zygote's imports
_TRIES = 6  # zygotes in a row that ended or were spoilt


class WarmStart:
    """All zygotes of a node: the one that forks, and older ones that live for their workers' sake."""

    def __init__(self, say: Callable[[str], None], on_change: Callable[[bool], None]) -> None:
        self._say, self._on_change = say, on_change
        self._loop = asyncio.get_running_loop()
        self._launch: Optional[Launch] = None  # what zygotes are made for
        self._zygote: Optional[Zygote] = None
        self._retired: List[Zygote] = []
        self._preloads: Optional[Preloads] = None
        self._extra: List[str] = []  # what the user wants to be imported
        self._vain: Set[str] = set()  # modules that cannot be imported ahead, or not at all
        self._reasons: Set[str] = set()  # that were said already
        self._tries = 0
        self._notes: Optional[Notes] = None
        self._learning_ends = 0.0
        self._quiet: Optional[asyncio.TimerHandle] = None
        self._patience: Optional[asyncio.TimerHandle] = None
        self.warming = False  # workers would have to wait for imports

    def begin(self, launch: Launch, preload: List[str]) -> None:
        """From now on workers like this one are expected."""
        if not launch.interpreter or not zygote.possible():
            return
        self._launch, self._extra = launch, list(preload)
        self._preloads = Preloads(
            path_of(launch.argv[0], launch.stable or launch.argv, launch.source or launch.cwd or os.getcwd())
        )
        self._preloads.belong_to_code(_digest(launch))
        self._preloads.fit(launch.env)
        if self._preloads.names or self._extra:
            self._spawn()

    @property
    def processes(self) -> List[int]:
        """The zygotes, each of which leads a session."""
        return [each.pid for each in (self._zygote, *self._retired) if each is not None]

    def takes(self, launch: Launch) -> bool:
        """Is there a zygote from which this worker can come?"""
        if self._zygote is not None and launch.interpreter and self._preloads is not None:
            edited = self._preloads.code != _digest(launch)
            if edited:
                self._preloads.belong_to_code(_digest(launch))
            if edited or not self._zygote.fits(launch):
                self._preloads.fit(launch.env)
                self._vain.clear()
                self._launch = launch
                self._retire()
                self._spawn()
        return self._zygote is not None and launch.interpreter > 0

    def fork(self, launch: Launch, out: int, err: int, birth: SpawnRequest) -> None:
        """Forks it, when the zygote has made its imports; takes the descriptors over."""
        assert self._zygote is not None
        self._zygote.fork(launch, out, err, birth, self._notebook(launch))

    def call_off(self, birth: SpawnRequest) -> bool:
        """Takes a fork back that no zygote has been asked for yet."""
        return self._zygote is not None and self._zygote.call_off(birth)

    def observed(self, launch: Launch) -> Dict[str, str]:
        """The environment of a worker that is started: such that its imports become known, where they are wanted."""
        notes = self._notebook(launch)
        return startup.environment(launch.env, startup.LEARN, notes) if notes else launch.env

    # -- learning ----------------------------------------------------------------------------------------------------

    def _notebook(self, launch: Launch) -> str:
        """Where a worker can note its imports. All do: what they find when they import may depend on their rank."""
        if self._preloads is None or not launch.interpreter:
            return ""
        if self._notes is None:
            self._notes = Notes()
        self._learning_ends = self._loop.time() + _LEARNING
        self._look_later()
        return self._notes.path

    def _look_later(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.call_later(_QUIET, self._look)

    def _look(self) -> None:
        if self._notes is not None and not self._notes.grown():
            self.learn()
        if self._loop.time() < self._learning_ends:
            self._look_later()

    def learn(self) -> None:
        """Takes in what workers have imported by now, and has it imported for the next ones."""
        if self._notes is None or self._preloads is None:
            return
        noted, varying = self._notes.read(), set(self._preloads.varying)
        imports = [(name, state) for name, state in noted.imports if name not in self._vain]
        new = [name for name, state in imports if self._preloads.add(name, state, ROUND_NAMES)]
        for name, why in noted.misfits:
            if name not in new:
                self._preloads.keep_out([name], f"is not imported in the state that it was learnt in: {why}")
            self._remark(f"started a worker again without preloaded imports: {why} had changed when it imported {name}")
        if not new and not noted.misfits:
            return
        self._preloads.save()
        differs = any(self._preloads.states.get(name) for name in self._extra if name in new)
        if self._zygote is None:
            self._spawn()
        elif noted.misfits or differs or varying != self._preloads.varying:
            self._retire()
            self._spawn()
        elif self._zygote.greeted:  # if not, it has yet to get its list
            self._import(new)
            self._be_patient()
            self._changed()

    # -- zygotes -----------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        assert self._launch is not None
        if self._tries > _TRIES:
            self._give_up(f"{self._tries} zygotes in a row failed")
            return
        try:
            self._zygote = Zygote(self._launch, self)
        except OSError as error:
            self._give_up(f"cannot start a zygote: {error.strerror or error}")
            return
        self._be_patient()
        self._changed()

    def greeted(self, zygote: Zygote, python: str) -> None:
        """It runs; now it gets its list."""
        if self._preloads is None or zygote is not self._zygote:
            return
        self._preloads.belong_to(python)
        unknown = [name for name in self._extra if name not in self._preloads.states]
        self._import([*unknown, *self._preloads.names])
        self._changed()

    def _import(self, names: List[str]) -> None:
        assert self._zygote is not None and self._preloads is not None
        if names:
            own = sorted({*ROUND_NAMES, *self._preloads.varying})
            self._zygote.preload(self._preloads.groups(dict.fromkeys(names)), self._without(), own)

    def _without(self) -> List[str]:
        assert self._launch is not None and self._preloads is not None
        program = self._launch.argv[self._launch.interpreter :]
        main = [program[1], program[1] + ".__main__"] if program[0] == "-m" else []  # runpy wants to be its first user
        return sorted([*self._preloads.without, *main])

    def preloaded(self, zygote: Zygote, findings: Dict[str, Any]) -> None:
        """It has made a list of imports, or the part of it before one that made trouble."""
        if self._preloads is None:
            return
        for name, error in findings["failed"].items():
            if name in self._extra:
                self._remark(f"--preload {name}: cannot be imported: {error}")
        for name in findings["foreign"]:
            if name in self._extra:
                self._remark(f"--preload {name}: not an installed package, and only those can be preloaded")
        self._vain.update(findings["foreign"], findings["failed"])
        self._preloads.drop([*findings["foreign"], *findings["failed"]])
        self._preloads.forget_states(findings["left"])  # until a worker has told them again
        if findings["trouble"] and findings["trouble"][0][0] not in findings["left"]:
            modules, why = findings["trouble"]
            others = ", with those that import it" if len(modules) > 1 else ""
            self._say(f"{modules[0]} is left for each worker to import{others}: it {why}")
            self._preloads.keep_out(modules, why)
            self._extra = [name for name in self._extra if name not in modules]
        self._preloads.save()
        if zygote is self._zygote:
            self._settle(spoilt=bool(findings["trouble"]))

    def _settle(self, spoilt: bool) -> None:
        """The present zygote has answered."""
        if spoilt:
            self._tries += 1
            self._retire()
            self._spawn()
        elif self._zygote is not None and not self._zygote.busy:
            self._tries = 0
        self._changed()

    def refused(self, why: str) -> None:
        """A worker has to be started cold."""
        self._remark(f"workers start without preloaded imports: {why}")

    def _remark(self, sentence: str) -> None:
        """Once."""
        if sentence not in self._reasons:
            self._reasons.add(sentence)
            self._say(sentence)

    def gone(self, zygote: Zygote, why: str) -> None:
        """It has ended, and its workers with it."""
        if zygote in self._retired:
            self._retired.remove(zygote)
            return
        self._zygote = None
        self._tries += 1
        if zygote.greeted:
            self._say(f"the zygote of this node's workers ended: {why}")
            self._spawn()
        else:
            self._give_up(why)
        self._changed()

    def _retire(self) -> None:
        """No worker will come from the present one any more."""
        old, self._zygote = self._zygote, None
        if old is not None:
            self._retired.append(old)
            old.retire()

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(_PATIENCE, self._lose_patience)

    def _lose_patience(self) -> None:
        if self._zygote is not None and self._zygote.busy:
            self._give_up(f"imports did not finish within {_PATIENCE:g} s")

    def _give_up(self, why: str) -> None:
        self._say(f"workers on this node start without preloaded imports from now on: {why}")
        self._preloads = None
        self._retire()
        self._changed()

    def _changed(self) -> None:
        warming = self._zygote is not None and self._zygote.busy
        if warming != self.warming:
            self.warming = warming
            self._on_change(warming)


def _digest(launch: Launch) -> str:
    return digest_of(launch.argv[launch.interpreter :], launch.cwd or os.getcwd())
