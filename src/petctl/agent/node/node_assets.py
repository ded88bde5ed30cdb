"""What a node needs beside its workers: the code and folders that come before them, the results that go after them.

    task, problem    as the workers find it; why there can be none
    bring            what is elsewhere; then `coming` says what is still on its way, as people are told it
    send_the_rest    when the workers have ended

Each of the three has a thread and a connection of its own; here is only who waits for whom. Most jobs have code only,
so the others are imported when they are wanted. What the job's layout wants on this node (`Site`) is made first.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any, Awaitable, Callable, List, Optional, Sequence

from petctl.agent.data.code_source import CodeSource
from petctl.agent.data.new_files import PLACE, keep_new_files, unsaved_files
from petctl.agent.node.host import Devices, make_checkpoints, state_directory
from petctl.agent.node.options import Options
from petctl.agent.workers.spawn import Launch
from petctl.job.task import Task
from petctl.rendezvous.net.join_file import JoinFile

if TYPE_CHECKING:
    from petctl.agent.data.folders import Folders
    from petctl.agent.data.results import Results


class Belongings:
    """Those of one node. Made inside the running loop, where its callbacks are called too."""

    def __init__(
        self,
        task: Task,
        join: JoinFile,
        options: Options,
        log_dir: str,
        devices: Devices,
        remark: Callable[[str], None],
        tell_unsaved: Callable[[str], None],
    ) -> None:
        self._join, self._options, self._log_dir, self._remark = join, options, log_dir, remark
        self._tell_unsaved = tell_unsaved
        self._loop = asyncio.get_running_loop()
        self.task, self.problem = task, ""
        self._state = state_directory(task, options)
        self._site: Any = None  # the `Site` of a module of agent/layouts/
        self._code: Optional[CodeSource] = None
        self._folders: Optional[Folders] = None
        self._results: Optional[Results] = None
        self._fetching = ""
        self._elsewhere = False  # is the copy of the code this node's own? Else the cluster's machine sees to it
        make_checkpoints(task)
        if task.layout.kind:
            self._make_site(devices)

    def _make_site(self, devices: Devices) -> None:
        from petctl.agent.data import folders
        from petctl.agent.layouts import layout_module

        def tell(sentence: str) -> None:
            with contextlib.suppress(RuntimeError):  # the node has ended meanwhile
                self._loop.call_soon_threadsafe(self._remark, sentence)

        environ = {**os.environ, **self.task.env}
        mounted = folders.links(folders.arrange(self.task.folders, folders.cache_of(self.task, self._state)))
        about = (self._options.node, self._log_dir, mounted, devices.count(environ))
        self._site = layout_module(self.task.layout).Site(self.task, *about, environ, tell)
        self.task, self.problem = self._site.task, self._site.problem

    def bring(self, arrived: Callable[[], None], doing: Callable[[str], None]) -> None:
        """Begins to. `arrived`: all is there, or cannot be; only if something has to come. `doing`: how far it is."""
        self._arrived, self._doing = arrived, doing
        if self.task.folders or self.task.code.id:
            self._begin()
        if self.task.results:
            from petctl.agent.data.results import Results

            self._results = Results(self.task, self._join, self._options.node, self._log_dir)

    @property
    def coming(self) -> str:
        """What the workers have to wait for."""
        return self._fetching or ("unpacking code" if self._code is not None else "")

    @property
    def go_back(self) -> bool:
        """Is anything sent when the workers have ended?"""
        sends = self._folders is not None and self._folders.sends
        return self._results is not None or self._site is not None or sends or self._elsewhere

    async def send_the_rest(self) -> None:
        """Until all that the workers made is where it belongs, or cannot be."""
        if self._site is not None:
            await self._loop.run_in_executor(None, self._site.finish)
        if self._elsewhere and self.task.output_dir:
            kept = keep_new_files(self.task.copy, self.task.output_dir)
            unsaved = self._unsaved() if "" not in self.task.results else ""
            if unsaved:
                self._tell_unsaved(unsaved)
            elif kept:
                self._remark(kept)
        works: List[Awaitable[None]] = []
        if self._results is not None:
            sent: asyncio.Future[None] = self._loop.create_future()
            self._results.finish(lambda: None if sent.done() else sent.set_result(None))
            works.append(sent)
        if self._folders is not None:
            works.append(self._loop.run_in_executor(None, self._folders.finish))
        await asyncio.gather(*works)

    def _unsaved(self) -> str:
        """Says which files nothing brings to the user, and what would; empty: none."""
        from petctl.agent.data.uploader import walk

        found = [path for path, _ in walk(self.task.output_dir) if path.split("/")[0] not in self.task.results]
        names = [path[len(PLACE) + 1 :] if path.startswith(f"{PLACE}/") else path for path in found]
        in_pod = self._options.leave_code is not None
        return unsaved_files(names, "" if in_pod else self.task.output_dir) if names else ""

    def give_up(self) -> None:
        """The node ends now."""
        for one in (self._code, self._folders, self._results, self._site):
            if one is not None:
                one.give_up()

    def _begin(self) -> None:
        """The code, and the folders that are seen in it."""
        task, links = self.task, {}
        if task.folders:
            from petctl.agent.data import folders

            cache = folders.cache_of(task, self._state)
            arranged = folders.arrange(task.folders, cache)
            links, self._fetching = folders.links(arranged), "fetching folders"
            self._folders = folders.Folders(
                task, self._join, arranged, cache, self._folders_arrived, self._folders_come, self._remark
            )
        if task.code.id:
            self._code = CodeSource(task.code, self._join, self._state, self._code_arrived, self._remark, links)

    def starting(self, number: int, first: int, end: int, planned: Sequence[Launch]) -> None:
        """These are about to be started; the node has the ranks from `first` to before `end` in round `number`."""
        if self._site is not None:
            self._site.starting(number, first, end, planned)

    def _folders_come(self, sentence: str) -> None:
        self._fetching = sentence
        self._doing(sentence)

    def _folders_arrived(self, why_not: str) -> None:
        self._fetching = ""
        self._check(why_not)

    def _code_arrived(self, directory: str, why_not: str) -> None:
        self._code = None
        if directory:
            root = os.path.normpath(directory)
            self.task = dataclasses.replace(self.task, cwd=self._working_directory(root), root=root)
            self._elsewhere = self.task.copy != os.path.normpath(self.task.code.directory or os.sep)
            if self._results is not None:
                self._results.look_into(self.task.copy)
        self._check(why_not)

    def _working_directory(self, root: str) -> str:
        """The user's own directory on the machine that has it, else the snapshot."""
        code, own = self.task.code, self.task.cwd
        if not own or root != os.path.normpath(os.path.join(code.directory, code.inside)):
            return root
        if not os.access(own, os.X_OK):
            self._remark(f"node {self._options.node} works in its copy of the code: {own} is gone or closed to it")
            return root
        return own

    def _check(self, why_not: str) -> None:
        self.problem = self.problem or why_not
        if not self.coming:
            self._arrived()
