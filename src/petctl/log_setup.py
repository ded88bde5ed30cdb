"""Where petctl's own log goes, and from which level on: stderr, as $PETCTL_LOG says.

    PETCTL_LOG=debug                      everything
    PETCTL_LOG=info,rendezvous.net=debug  from info on, and all of one module or package of petctl

Each module has a logger named after it. Standard library only: nodes use this, too.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Dict, Mapping, Optional, Tuple

from petctl.errors import UsageError

VARIABLE = "PETCTL_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_ROOT = "petctl"

log = logging.getLogger(__name__)


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # not generic at run time
    """Writes to stderr; a reader that is gone or a full disk must not stop the work."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to_stderr(level: int, who: str = "", environ: Mapping[str, str] = os.environ) -> None:
    """Begins the log of a process that works by itself: a wrong $PETCTL_LOG is told and ignored."""
    problem = ""
    try:
        chosen, modules = parse_levels(environ.get(VARIABLE, ""))
    except UsageError as error:
        problem, chosen, modules = str(error), None, {}
    begin_log(level if chosen is None else chosen, modules, who)
    if problem:
        log.warning("%s", problem)


def begin_log(level: int, modules: Mapping[str, int], who: str = "") -> None:
    """Sends petctl's log to stderr, and the warnings of libraries. `who` stands in every line."""
    handler = _Stderr()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {who and who + ' '}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name, of_module in {_ROOT: level, **modules}.items():
        logging.getLogger(name).setLevel(of_module)


def parse_levels(text: str) -> Tuple[Optional[int], Dict[str, int]]:
    """The level of everything, where it is given, and those of modules by the names of their loggers."""
    everything, modules = None, {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, level = word.rpartition("=")
        if level.lower() not in LEVELS or (equals and not name):
            known = ", ".join(LEVELS)
            raise UsageError(f"{VARIABLE}={text}: {word!r} is not LEVEL or MODULE=LEVEL; levels are {known}")
        if name:
            modules[name if name.split(".")[0] == _ROOT else f"{_ROOT}.{name}"] = LEVELS[level.lower()]
        else:
            everything = LEVELS[level.lower()]
    return everything, modules
