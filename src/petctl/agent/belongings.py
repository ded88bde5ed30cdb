"""What a node needs beside its workers: the code and folders that come before them, the results that go after them.

    coming           what is still on its way, as people are told it; empty: everything is there
    send_the_rest    when the workers have ended

Each of the three has a thread and a connection of its own; here is only who waits for whom. Most jobs have code only,
so the others are imported when they are wanted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Awaitable, Callable, List, Optional

from petctl.agent.codesource import CodeSource
from petctl.agent.host import state_directory
from petctl.agent.options import Options
from petctl.agent.task import Task
from petctl.rendezvous.joinfile import JoinFile

if TYPE_CHECKING:
    from petctl.agent.batchai import Site
    from petctl.agent.folders import Folders
    from petctl.agent.results import Results


class Belongings:
    """Those of one node. Made inside the running loop, where its callbacks are called too."""

    def __init__(
        self,
        task: Task,
        join: JoinFile,
        options: Options,
        log_dir: str,
        arrived: Callable[[str, str], None],
        doing: Callable[[str], None],
        say: Callable[[str], None],
        remark: Callable[[str], None],
        site: Optional[Site] = None,
    ) -> None:
        """`arrived`: all is there, with the workers' directory, or the reason why not; only if something has to come.
        `doing`: how far it is. `site`: what a Batch AI job has on this node."""
        self._loop = asyncio.get_running_loop()
        self._arrived, self._doing, self._site = arrived, doing, site
        self._code: Optional[CodeSource] = None
        self._folders: Optional[Folders] = None
        self._results: Optional[Results] = None
        self._fetching = ""
        self._directory, self._why_not = "", ""
        if task.code.id or task.folders:
            self._bring(task, join, state_directory(task, options), remark)
        if task.results:
            from petctl.agent.results import Results

            self._results = Results(task, join, options.node, log_dir, say)

    @property
    def coming(self) -> str:
        """What the workers have to wait for."""
        return self._fetching or ("unpacking code" if self._code is not None else "")

    @property
    def go_back(self) -> bool:
        """Is anything sent when the workers have ended?"""
        sends = self._folders is not None and self._folders.sends
        return self._results is not None or self._site is not None or sends

    async def send_the_rest(self) -> None:
        """Until all that the workers made is where it belongs, or cannot be."""
        if self._site is not None:
            await self._loop.run_in_executor(None, self._site.finish)
        works: List[Awaitable[None]] = []
        if self._results is not None:
            sent: asyncio.Future[None] = self._loop.create_future()
            self._results.finish(lambda: None if sent.done() else sent.set_result(None))
            works.append(sent)
        if self._folders is not None:
            works.append(self._loop.run_in_executor(None, self._folders.finish))
        await asyncio.gather(*works)

    def give_up(self) -> None:
        """The node ends now."""
        for one in (self._code, self._folders, self._results, self._site):
            if one is not None:
                one.give_up()

    def _bring(self, task: Task, join: JoinFile, state: str, remark: Callable[[str], None]) -> None:
        """The code, and the folders that are seen in it."""
        links = {}
        if task.folders:
            from petctl.agent import folders

            cache = folders.cache_of(task, state)
            arranged = folders.arrange(task.folders, cache)
            links, self._fetching = folders.links(arranged), "fetching folders"
            self._folders = folders.Folders(
                task, join, arranged, cache, self._folders_arrived, self._folders_come, remark
            )
        if task.code.id:
            self._code = CodeSource(task.code, join, state, self._code_arrived, remark, links)

    def _folders_come(self, sentence: str) -> None:
        self._fetching = sentence
        self._doing(sentence)

    def _folders_arrived(self, why_not: str) -> None:
        self._fetching = ""
        self._check(why_not)

    def _code_arrived(self, directory: str, why_not: str) -> None:
        self._code, self._directory = None, directory
        self._check(why_not)

    def _check(self, why_not: str) -> None:
        self._why_not = self._why_not or why_not
        if not self.coming:
            self._arrived(self._directory, self._why_not)
