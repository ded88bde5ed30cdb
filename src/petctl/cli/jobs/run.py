"""petctl run: start a job, follow it, exit with its code."""

from __future__ import annotations

import sys
from typing import Any

import click

from petctl.cli.job_options import CONTEXT, JobCommand, job_options, prepare_job
from petctl.console.commands import examples, print_json


@click.command(
    "run",
    cls=JobCommand,
    context_settings=CONTEXT,
    epilog=examples(
        "petctl run train.py --lr 0.1                    one worker, here",
        "petctl run -n 1:3 --procs 2 train.py --lr 0.1   one to three nodes, two workers each",
        "petctl run -n 2 -- nvidia-smi -L                any program",
        "petctl run -m mypackage.train --lr 0.1          a Python module",
        "petctl run job.yaml                             a job file",
        "petctl run job.yaml --set lr=0.1 -n 4           ... with ${lr} filled in, on four nodes",
    ),
)
@job_options()
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and return at once.  [default: no]")
def command(detach: bool, **options: Any) -> int:
    """Start a job, follow it to its end, exit with its exit code.

    COMMAND is a job file (.yaml, .json), a Python script (.py) or any program. petctl's own options come before it
    (or right behind a job file); every other word behind it is its own.

    Ctrl-C cancels the job, a second Ctrl-C kills it. When the reader of the output goes away (| head) the job goes on.
    """
    from petctl.cli.jobs.submit import announce, submit_job

    prepared = prepare_job(options)
    job = prepared.job
    if detach:
        return announce(
            submit_job(prepared, options["cluster"], options["quiet"]), options["output"] == "json", options["quiet"]
        )

    from petctl.cli.failures import INTERRUPTED, READER_GONE, silence_broken_streams
    from petctl.cli.terminal.ending import tell_end
    from petctl.cli.terminal.follow import Follower, held_interrupts
    from petctl.cli.terminal.text import task_names
    from petctl.console.screen import Screen

    as_json = options["output"] == "json"
    many = job.nodes.max > 1 or job.procs != "1" or bool(job.roles)
    names = task_names(job.roles, job.nodes.min, job.nodes.max)
    # With -o json stdout belongs to the one document: what the workers print goes to stderr.
    screen = Screen(prefix=many, output=sys.stderr.buffer if as_json else None, quiet=options["quiet"], names=names)
    with held_interrupts() as pressed:
        handle = submit_job(prepared, options["cluster"], options["quiet"])
        follower = Follower(handle, screen)
        try:
            screen.say(f"submitted job {handle.id}")
            status = follower.follow(pressed)
        except BrokenPipeError:
            silence_broken_streams()
            screen.say(f"the output was closed; job {handle.id} keeps running (petctl status {handle.id})")
            return READER_GONE
        except OSError:  # the disk of stdout is full, for one
            screen.say(f"job {handle.id} keeps running (petctl status {handle.id})")
            raise
        except KeyboardInterrupt:
            screen.complain(f"stopped following; job {handle.id} may still be running (petctl status {handle.id})")
            return INTERRUPTED
    if as_json:
        print_json(status.to_dict())
    return tell_end(status, screen)
