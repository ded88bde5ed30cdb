"""How errors leave petctl: a sentence on stderr and an exit code.

    expected (PetctlError)        the sentence, the error's own code
    wrong words (click)           the sentence and where help is, 2
    Ctrl-C                        130
    the reader of stdout is gone  nothing, 141 as the shell would say
    the disk of stdout is full    the sentence, 1
    $PETCTL_HOME is unusable      the sentence, 2
    anything else                 petctl's fault: one sentence, 70, the traceback in a file under $PETCTL_HOME

With -o json an error is one JSON document on stderr.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from typing import Sequence, TextIO

import click

from petctl.cli.group import petctl
from petctl.cli.stdout_errors import NO_ROOM
from petctl.console.terminal import guarded
from petctl.errors import InternalError, PetctlError, UsageError, is_no_room

INTERRUPTED = 130
READER_GONE = 141
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class Invocation:
    """What is known about this command line as a whole; the click context's `obj`."""

    json = False
    program = "petctl"


def run_to_exit_code(words: Sequence[str], command: click.Command = petctl, program: str = "petctl") -> int:
    """Runs one command line, of petctl or of a front end; never raises, but for SystemExit of the shell completion."""
    invocation = Invocation()
    invocation.program = program
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # words that are no text (a file name in bytes) must not end in an error
            stream.reconfigure(errors="backslashreplace")
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)
    try:
        return _run(words, command, program, invocation)
    finally:
        sys.stdout, sys.stderr = before


def _run(words: Sequence[str], command: click.Command, program: str, invocation: Invocation) -> int:
    try:
        code = command.main(list(words), prog_name=program, standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PetctlError as error:
        return _tell(str(error), error.code, invocation)
    except click.UsageError as error:
        if error.format_message().startswith("Usage: "):  # verbs under a verb, and none was named: click shows the help
            return _print(error.format_message(), 2)
        where = error.ctx.command_path if error.ctx else program
        return _tell(f"{_sentence(error)}\n(see '{where} --help')", 2, invocation)
    except click.ClickException as error:
        return _tell(error.format_message(), error.exit_code, invocation)
    except (KeyboardInterrupt, click.Abort):
        return _tell("interrupted", INTERRUPTED, invocation)
    except BrokenPipeError:
        silence_broken_streams()
        return READER_GONE
    except Exception as error:
        if isinstance(error, OSError) and is_no_room(error) and error.filename is None:
            _silence(sys.stdout)
            return _tell(NO_ROOM, PetctlError.code, invocation)
        unusable = _unusable_home() if getattr(error, "errno", None) in _NOT_OURS else ""
        if unusable:
            return _tell(unusable, UsageError.code, invocation)
        return _tell(_unexpected(error, words, program), InternalError.code, invocation)


def silence_broken_streams() -> None:
    """Keeps the interpreter from complaining at its end, and changing the exit code, about a reader that is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence(stream)
        except ValueError:  # closed already
            pass


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _sentence(error: click.UsageError) -> str:
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and error.ctx and any(p.name == "words" for p in error.ctx.command.params):
        behind = f"Options for your script go after it: {error.ctx.command_path} COMMAND {error.option_name}"
        message = f"no such option {error.option_name!r}.{_close(error)} {behind}"
    return message[:1].lower() + message[1:]


def _close(error: click.NoSuchOption) -> str:
    """The option that was meant; of short words too many are alike."""
    import difflib

    close = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.75)
    return f" Did you mean {close[0]}?" if close else ""


def _tell(sentence: str, code: int, invocation: Invocation) -> int:
    if invocation.json:
        return _print(json.dumps({"error": sentence, "code": code}), code)
    return _print(f"{invocation.program}: {sentence}", code)


def _print(text: str, code: int) -> int:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, or its disk is full: the code is left to say it
        _silence(sys.stderr)
    return code


def _unusable_home() -> str:
    """Why nothing can be kept in petctl's home, where that is so: an error about a file is then the machine's."""
    from petctl.home import ANOTHER, petctl_home, unusable

    try:
        home = petctl_home()
    except UsageError as error:
        return str(error)
    why = unusable(home)
    return f"cannot write to {home}: {why}; {ANOTHER}" if why else ""


def _unexpected(error: Exception, words: Sequence[str], program: str) -> str:
    """Writes the traceback into a file and says which. Only the verb is noted: other words may be secret."""
    import tempfile
    import time
    import traceback
    from pathlib import Path

    from petctl.home import petctl_home

    what = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    text = f"{program} {next(iter(words), '')}\n\n{''.join(traceback.format_exception(error))}"
    name = time.strftime("crash-%Y%m%d-%H%M%S-") + f"{os.getpid()}.log"
    for place in (petctl_home, tempfile.gettempdir):
        try:
            folder = Path(place())
            with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as report:
                report.write(text)
        except (OSError, UsageError):  # no home that can be used
            continue
        return f"{what}. This is an error in petctl; please report it with {folder / name}"
    return f"{what}. This is an error in petctl; its report could not be written"
