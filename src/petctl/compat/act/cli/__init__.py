"""The front end `act` (and `a`): verbs and flags of AML Command Transfer over `petctl.compat.act`. Thin: words in,
lines out.

    verbs.py       which verbs there are, and the first page of help; imports nothing
    a.py           the same under its other name
    flags.py       the flags, which stand before the verb or right behind it; what they say together
    flag_hints.py   flags of act's own that were written among a command's words
    code.py        init, initi, initc, initic
    start.py    submit, s, local, resubmit
    query.py    query, q, failed, f, qf, qq, qr, blame, summary, parse
    control.py    abort, a, ssh
    data.py        ls, upload, u, download, d, rm, url

Only installed when asked for: `petctl compat install act`. Nothing is imported until its verb is typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from click import Command


def main(words: Sequence[str] | None = None, program: str = "act") -> NoReturn:
    """Runs one command line of `act`, under the name that was typed, and exits with its code."""
    from petctl.compat.act.cli.verbs import overview
    from petctl.compat.batchai.cli.verbs import start

    def root() -> Command:
        from petctl.compat.act.cli import flags

        return flags.root(program)

    start(program, words, overview, root)
