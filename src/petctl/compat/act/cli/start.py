"""act submit, s, local, resubmit: a command becomes a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from petctl.cli.failures import INTERRUPTED, READER_GONE, silence_broken_streams
from petctl.cli.options import complete_job
from petctl.cli.terminal.ending import tell_end
from petctl.cli.terminal.follow import Follower, held_interrupts
from petctl.compat.act import runs as acts
from petctl.compat.act.cli.flag_hints import misplaced
from petctl.compat.act.cli.flags import Flags, verb
from petctl.compat.act.cli.query import tell_summary
from petctl.compat.act.compile import RunRequest
from petctl.compat.act.run_facts import facts
from petctl.compat.batchai.cli.base_command import say
from petctl.console.commands import print_json
from petctl.console.screen import Screen
from petctl.errors import UsageError
from petctl.jobs import JobHandle

_HEEDS = ("num_gpu", "cluster", "single", "hold", "compile_args", "new_code", "output")
_words = click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)


@verb(
    "submit",
    "act submit nvidia-smi",
    "act -n 8 submit python train.py --data voc20",
    "act submit -n 8 --new-code python train.py --data voc20",
    "act -c eu submit 'cd src && make && ./train | tee log'    a line with blanks is for the shell",
    heeds=_HEEDS,
    command_behind=True,
)
@_words
def submit(said: Flags, words: tuple[str, ...]) -> int:
    """Run a command on a cluster, with the code that was pinned last; the run's id is printed.

    Flags of act's own come before COMMAND, before or behind the verb; every word behind it is its own and arrives as it
    was typed.
    """
    return _submit(said, words)


@verb(
    "s",
    "act s python train.py                submit",
    "act s                                summary",
    heeds=_HEEDS,
    command_behind=True,
)
@_words
def s(said: Flags, words: tuple[str, ...]) -> int:
    """With a command: submit. Alone: summary."""
    if words:
        return _submit(said, words)

    return tell_summary(said)


@verb(
    "local",
    "act local python train.py --data voc20",
    heeds=("cluster", "hold", "compile_args", "output"),
    command_behind=True,
)
@_words
def local(said: Flags, words: tuple[str, ...]) -> int:
    """Run a command on this machine as it would run on a cluster, in one process; follow it, exit with its code.

    Mapped folders that are here are used as they are.
    """
    wish = _wish(said, "local", words)
    config = said.config()
    # With -o json stdout belongs to the one document: what the command prints goes to stderr.
    screen = Screen(prefix=False, output=sys.stderr.buffer if said.json else None)
    with held_interrupts() as pressed:
        handle = acts.local(config, wish, say=say)
        try:
            screen.say(f"submitted run {handle.id}")
            status = Follower(handle, screen).follow(pressed)
        except BrokenPipeError:
            silence_broken_streams()
            return READER_GONE
        except KeyboardInterrupt:
            screen.complain(
                f"stopped following; {handle.id} may still be running; end it with: {_program()} abort {handle.id}"
            )
            return INTERRUPTED
    if said.json:
        print_json(facts(handle))
    return tell_end(status, screen)


@verb(
    "resubmit",
    "act resubmit 60ce2fc7",
    "act -rt eu resubmit 60ce2fc7 5f0e2a11           on another cluster",
    "act resubmit --new-code 60ce2fc7",
    heeds=("cluster", "resubmit_to", "new_code", "output"),
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_job)
def resubmit(said: Flags, runs: tuple[str, ...]) -> int:
    """Abort runs and, when nothing of them runs any more, run the same again with the code that was pinned last.

    Command, GPUs and flags are those of the run; the rest is what its YAML says today. The new ids are printed.
    """
    config = said.config() if said.cluster else None
    to = said.target()
    for remark in to.remarks if to is not None else ():
        say(remark)
    before = acts.find_runs(runs)
    started = (acts.resubmit(run.id, config, to=to, new_code=said.new_code, say=say) for run in before)
    return _tell(said, started, len(before))


def _submit(said: Flags, words: tuple[str, ...]) -> int:

    wish = _wish(said, "submit", words)
    config = said.config()
    for remark in config.remarks:
        say(remark)
    return _tell(said, [acts.submit(config, wish, new_code=said.new_code, say=say)])


def _wish(said: Flags, verb: str, words: tuple[str, ...]) -> RunRequest:

    if not words:
        raise UsageError(f"nothing to run: give a command, for example: {_program()} {verb} python train.py")
    for sentence in misplaced(_program(), verb, words, said, _is_config):
        say(sentence)
    return RunRequest(list(words), said.num_gpu, said.single, said.hold, said.compile_args)


def _is_config(name: str) -> bool:
    # what stands behind -c may be a whole program, too long for a name: pathlib would raise
    return bool(name) and "/" not in name and os.path.exists(f"aux_data/aml/{name}.yaml")  # noqa: PTH110


def _program() -> str:
    return click.get_current_context().find_root().info_name or "act"


def _tell(said: Flags, started: Iterable[JobHandle], count: int = 1) -> int:
    """Ids as they come: where one of several fails, those before it run, and are told."""
    ids: list[str] = []
    try:
        for handle in started:
            ids.append(handle.id)
            if not said.json:
                click.echo(handle.id)
    finally:
        if said.json and ids:
            print_json({"id": ids[0]} if count == 1 else {"ids": ids})
    if not said.json:
        say(f"submitted; see it with: {_program()} q {ids[-1]}")
    return 0
