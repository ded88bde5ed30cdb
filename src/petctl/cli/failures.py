"""How errors leave petctl: a sentence on stderr and an exit code.

    expected (PetctlError)        the sentence, the error's own code
    wrong words (click)           the sentence and where help is, 2
    Ctrl-C                        130
    the reader of stdout is gone  nothing, 141 as the shell would say
    anything else                 petctl's fault: one sentence, 70, the traceback in a file under $PETCTL_HOME

With -o json an error is one JSON document on stderr.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Sequence

import click

from petctl.cli.group import petctl
from petctl.errors import InternalError, PetctlError

INTERRUPTED = 130
READER_GONE = 141


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
        return _tell(f"{_sentence(error)}\n('{where} --help' tells more)", 2, invocation)
    except click.ClickException as error:
        return _tell(error.format_message(), error.exit_code, invocation)
    except (KeyboardInterrupt, click.Abort):
        return _tell("interrupted", INTERRUPTED, invocation)
    except BrokenPipeError:
        silence_broken_streams()
        return READER_GONE
    except Exception as error:
        return _tell(_unexpected(error, words, program), InternalError.code, invocation)


def silence_broken_streams() -> None:
    """Keeps the interpreter from complaining at its end, and changing the exit code, about a reader that is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # closed already
            pass


def _sentence(error: click.UsageError) -> str:
    message = error.format_message()
    return message[:1].lower() + message[1:]


def _tell(sentence: str, code: int, invocation: Invocation) -> int:
    if invocation.json:
        return _print(json.dumps({"error": sentence, "code": code}), code)
    return _print(f"{invocation.program}: {sentence}", code)


def _print(text: str, code: int) -> int:
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        silence_broken_streams()
    return code


def _unexpected(error: Exception, words: Sequence[str], program: str) -> str:
    """Writes the traceback into a file and says which. Only the verb is noted: other words may be secret."""
    import tempfile
    import time
    import traceback
    from pathlib import Path

    what = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    text = f"{program} {next(iter(words), '')}\n\n{''.join(traceback.format_exception(error))}"
    name = time.strftime("crash-%Y%m%d-%H%M%S-") + f"{os.getpid()}.log"
    home = os.environ.get("PETCTL_HOME") or "~/.local/state/petctl"
    for folder in (Path(home).expanduser(), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        except OSError:
            continue
        return f"{what}. This is a fault of petctl; please report it with {folder / name}"
    return f"{what}. This is a fault of petctl; its report could not be written"
