"""The control calls of a coordinator: what carries each out, and of which kind its arguments are.

Arguments come over the wire, from other versions and from anybody with the token. They are checked here, before the
call begins: what a call is handed is of the kind that it names. In the agent's archive functions have no annotations,
so kinds are data.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Mapping, NamedTuple, Union

from petctl.errors import UsageError


def _is_name(value: object) -> bool:
    return type(value) is str and value.isascii() and value.split() == [value]


class Kind(NamedTuple):
    """What an argument may be. `words` name it in messages."""

    words: str
    fits: Callable[[Any], bool]


WHOLE = Kind("a whole number", lambda value: type(value) is int)
NUMBER = Kind("a number", lambda value: type(value) in (int, float))
FLAG = Kind("true or false", lambda value: type(value) is bool)
TEXT = Kind("text", lambda value: type(value) is str)
LIST = Kind("a list", lambda value: type(value) is list)
NAMES = Kind(
    "a list of names",
    lambda value: type(value) is list and all(map(_is_name, value)),
)


class Call(NamedTuple):
    """One call. `needs`: arguments that must be there; `takes`: those that may. `nodes`: it is for nodes too."""

    act: Callable[..., object]
    needs: Mapping[str, Kind] = {}
    takes: Mapping[str, Kind] = {}
    nodes: bool = False

    def checked(self, name: str, arguments: Mapping[str, Any]) -> Dict[str, Any]:
        """The arguments, if they fit; UsageError names the first that does not."""
        for word in self.needs:
            if word not in arguments:
                raise UsageError(f"{_misfit(name)}: it needs {word!r}, {self.needs[word].words}")
        for word, value in arguments.items():
            kind = self.needs.get(word) or self.takes.get(word)
            if kind is None:
                raise UsageError(f"{_misfit(name)}: it takes no {word[:40]!r}")
            if not kind.fits(value):
                raise UsageError(f"{_misfit(name)}: {word!r} must be {kind.words}, not {_shown(value)}")
        return dict(arguments)


Calls = Mapping[str, Union[Call, Callable[[], object]]]  # a function alone takes no arguments


def calls_of(calls: Calls) -> Dict[str, Call]:
    """The same, each with the kinds of its arguments."""
    return {name: call if isinstance(call, Call) else Call(call) for name, call in calls.items()}


def _misfit(name: str) -> str:
    return f"the call {name!r} does not match the coordinator's"


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
