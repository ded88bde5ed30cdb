"""Every message that petctl can show, taken from its sources: one read of `messages.txt` shows them all.

Taken are the texts of errors, of events, of what is printed and of `help=`, and every other text that reads like a
sentence; what is filled in stands in braces.

    python -m tests.golden.messages          writes the file anew, after a message was changed on purpose
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/petctl"
FILE = Path(__file__).with_name("messages.txt")
SPEAKING = {
    "event",
    "echo",
    "say",
    "secho",
    "remark",
    "tell",
    "print",
    "detail",
    "info",
    "warning",
    "Event",
    "Outcome",
    "End",
}
"""Functions whose arguments people read; so are those of classes that end in Error, and of the errors named here."""
ERRORS = {"NotFound", "Refused", "Unreachable", "NoRoom", "NoSuchPlace", "InUse", "AlreadyExists", "BadParameter"}
LEAST_WORDS = 2  # fewer are a name, a kind or a key
SENTENCE = re.compile(r"[^\n;=<>\\]*[a-z]{2,} [a-z{][^\n;=<>\\]*")  # elsewhere: not a program, a pattern or a query
LEAST_OF_A_SENTENCE = 4


def messages() -> str:
    """All of them, module by module, each once."""
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        texts = list(dict.fromkeys(_texts(ast.parse(path.read_text("utf-8")))))
        if texts:
            found += [f"## {path.relative_to(SOURCE).as_posix()}", *texts, ""]
    return "\n".join(found)


def _texts(tree: ast.Module) -> Iterator[str]:
    taken = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if id(node) in taken:
            continue
        if isinstance(node, ast.Call):
            name = _name(node.func)
            speaks = name in SPEAKING or name in ERRORS or name.endswith("Error")
            words = [word.value for word in node.keywords if speaks or word.arg in ("help", "epilog", "short_help")]
            for argument in [*(node.args if speaks else ()), *words]:
                yield from _told(argument)
                taken |= {id(part) for part in ast.walk(argument)}
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            taken |= {id(part) for part in ast.walk(node)}
            text = " ".join(_text(node).split())
            if len(text.split()) >= LEAST_OF_A_SENTENCE and SENTENCE.fullmatch(text):
                yield text


def _told(node: ast.expr) -> Iterator[str]:
    """The texts of an argument: both of a choice, all of a concatenation."""
    if isinstance(node, ast.IfExp):
        yield from _told(node.body)
        yield from _told(node.orelse)
        return
    text = _text(node)
    if len(text.split()) >= LEAST_WORDS:
        yield " ".join(text.split())


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else _filled(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def _filled(node: ast.expr) -> str:
    return "{" + ast.unparse(node.value) + "}" if isinstance(node, ast.FormattedValue) else ""


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    FILE.write_text(messages())
    sys.exit(0)
