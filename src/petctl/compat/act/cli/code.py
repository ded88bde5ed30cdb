"""act init, initc: the code that runs take, pinned."""

from __future__ import annotations

from petctl.compat.act.build import build
from petctl.compat.act.cli.flags import Flags, verb
from petctl.compat.act.pins import Pin, pin
from petctl.compat.act.published import publish
from petctl.compat.batchai.cli.base_command import say
from petctl.console.commands import print_json


@verb("init", "act init", "act -c eu init", heeds=("cluster", "output"))
def init(said: Flags) -> None:
    """Pin the code of the current directory as it is now: submit and resubmit run the last one pinned.

    Only what has changed is taken anew, so initi is the same. The snapshot also goes to code_path, if the YAML has one,
    for others to see; runs never depend on that file.
    """
    config = said.config()
    made = pin(config)
    say(made.sentence())
    _tell(said, made, publish(config, made))


@verb("initc", "act initc", "act -ca 'clean fast' initc", heeds=("cluster", "compile_args", "output"))
def initc(said: Flags) -> None:
    """Pin the code, run its compile.aml.sh in the run's image or here, and pin what that has built.

    Runs can begin with the code as it was until the build has ended. initic is the same.
    """
    _tell(said, build(said.config(), said.compile_args, say=say), "")


def _tell(said: Flags, made: Pin, location: str) -> None:
    if said.json:
        print_json(
            {
                "id": made.id,
                "files": made.files,
                "bytes": made.bytes,
                "left_out": made.left_out,
                "code_path": location,
            }
        )
    elif location:
        say(f"a copy is at {location}")
