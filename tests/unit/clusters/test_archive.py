"""The archives that petctl brings along: the same programs as the sources, in fewer bytes."""

from __future__ import annotations

import ast
import configparser
import io
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters import agent_archive as archive
from petctl.clusters.agent_archive import (
    FOR_SUBMITTERS,
    PACKAGE,
    agent_bytes,
    build_operator,
    less_indented,
    operator_bytes,
    small_agent_bytes,
    without_annotations,
    without_comments,
    without_types,
)
from petctl.clusters.kubernetes.pods import manifests

SOURCES = sorted(name for name in archive._sources(archive.OPERATOR_PARTS) if name.endswith(".py"))


class Program(ast.NodeTransformer):
    """A syntax tree in which strings that are statements say nothing; blocks, which may end with one, have no end."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Pass(lineno=node.lineno, col_offset=node.col_offset)
        if isinstance(node, ast.stmt) and hasattr(node, "body"):
            node.end_lineno = node.end_col_offset = None
        return self.generic_visit(node)


def program(text: str) -> str:
    """Statements, with the line and column of each."""
    return ast.dump(Program().visit(ast.parse(text)), include_attributes=True)


def test_it_is_the_same_program_line_by_line() -> None:
    whole = bare = 0
    for name in SOURCES:
        text = (archive.PACKAGE.parent / name).read_text()
        stripped = without_comments(text)
        assert program(stripped) == program(text), name
        assert without_comments(stripped) == stripped, name
        whole, bare = whole + len(text), bare + len(stripped)
    assert bare < 0.85 * whole


TRICKY = '''
"""Of the module. # no comment"""  # but this
NAME = 1  # why
"""Of NAME,
in two lines."""
TEXT = (
    """kept: it is
    # inside brackets"""
    "kept # too"
)
LONG = """
# kept
    "kept"
"""
HASH = 'it\\'s # kept' + "\\\\"  # "gone
OTHER = \\
    """kept"""
PAIR = ["[", '(', {"}"}]; "after a semicolon"

class Thing:
    \'\'\'Gone, with "quotes" and \\\'\\\'\\\' in it.\'\'\'
    def act(self): "kept, on the line of its def"

    def only(self, text=f"{NAME!r:>{10}} #"):
        "gone"

    # gone
    def raw(self):
        r"""kept: it has a prefix \\d"""
        return (  # gone
            ""
            """two" quotes ""\\""""
        )
'''
BARE = '''
"""Of the module. # no comment"""
NAME = 1
"-"

TEXT = (
    """kept: it is
    # inside brackets"""
    "kept # too"
)
LONG = """
# kept
    "kept"
"""
HASH = 'it\\'s # kept' + "\\\\"
OTHER = \\
    """kept"""
PAIR = ["[", '(', {"}"}]; "after a semicolon"

class Thing:
    "-"
    def act(self): "kept, on the line of its def"

    def only(self, text=f"{NAME!r:>{10}} #"):
        "-"


    def raw(self):
        r"""kept: it has a prefix \\d"""
        return (
            ""
            """two" quotes ""\\""""
        )
'''


def test_what_is_no_comment_and_no_docstring_stays() -> None:
    assert without_comments(TRICKY) == BARE
    assert program(BARE) == program(TRICKY)
    for end in ("", "\n"):
        assert without_comments('def act():\n    """Why."""' + end) == 'def act():\n    "-"' + end
    assert without_comments("") == ""


class Untyped(ast.NodeTransformer):
    """A syntax tree whose functions have no types; what is left stays in its line, wherever there."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.value is not None:
            node = ast.copy_location(ast.Assign([node.target], node.value), node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
            node.end_lineno = node.lineno
        if isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword)):
            node.col_offset = node.end_col_offset = 0
        return self.generic_visit(node)


def untyped(text: str) -> str:
    return ast.dump(Untyped().visit(ast.parse(text)), include_attributes=True)


def test_without_types_it_is_the_same_program_line_by_line() -> None:
    for name in SOURCES:
        text = without_comments((archive.PACKAGE.parent / name).read_text())
        bare = without_annotations(text)
        assert untyped(bare) == untyped(text), name
        assert without_annotations(bare) == bare, name
        for node in ast.walk(ast.parse(bare)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.returns is None, (name, node.lineno)
            assert not isinstance(node, ast.arg) or node.annotation is None, name


TYPED = """
class Point(NamedTuple):
    x: int = 0

    async def move(self, by: dict[str, "int"] = {"a": 1}, /, *rest: Any, key: Key = lambda a, b: a, **more: Any) -> "P":
        y: int = by["a"]
        self.z: dict[str, int] = {"self.a: int = 1": 2}
        self.far: int
        return lambda z: z

def far(
    near: Callable[
        [int], str
    ],
    other=lambda: {1: 2}, last: bool = 1 == 2,
) -> None: ...
TEXT = '''
def kept(a: int) -> str: ...
'''
def plain(a, b=(1, 2)): return {a: b}
def odd() -> Dict[
    str, int
]: pass
"""
UNTYPED = """
class Point(NamedTuple):
    x: int = 0

    async def move(self, by= {"a": 1}, /, *rest, key= lambda a, b: a, **more):
        y: int = by["a"]
        self.z = {"self.a: int = 1": 2}
        self.far: int
        return lambda z: z

def far(
    near

,
    other=lambda: {1: 2}, last= 1 == 2,
): ...
TEXT = '''
def kept(a: int) -> str: ...
'''
def plain(a, b=(1, 2)): return {a: b}
def odd() -> Dict[
    str, int
]: pass
"""


def test_types_of_parameters_and_results_go_and_nothing_else() -> None:
    assert without_annotations(TYPED) == UNTYPED
    assert untyped(UNTYPED) == untyped(TYPED)


def shape(text: str) -> str:
    """Statements with their lines, wherever they are in them."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias, ast.excepthandler)):
            node.col_offset = node.end_col_offset = 0
    return ast.dump(tree, include_attributes=True)


def test_with_less_indentation_it_is_the_same_program_line_by_line() -> None:
    for name in SOURCES:
        text = without_comments((archive.PACKAGE.parent / name).read_text())
        assert shape(less_indented(text)) == shape(text), name
    text = 'if a:\n    b = """\n    c\n"""\n    if d:\n        e = (1,\n              2)\n'
    assert less_indented(text) == 'if a:\n b = """\n    c\n"""\n if d:\n  e = (1,\n     2)\n'


IMPORTS = re.compile(r"^from (?:typing|collections\.abc) import (?:\([^)]+\)|.+)$", re.MULTILINE)


def test_types_that_nothing_names_are_not_imported_and_all_others_are() -> None:
    for name in SOURCES:
        text = without_annotations(without_comments((archive.PACKAGE.parent / name).read_text()))
        bare = without_types(text)
        before, after = (
            {word for found in IMPORTS.findall(one) for word in re.findall(r"\w+", found)} for one in (text, bare)
        )
        assert IMPORTS.sub("", bare).split() == IMPORTS.sub("", text).split(), name
        assert bare.count("\n") == text.count("\n"), name
        for node in ast.walk(ast.parse(bare)):
            if isinstance(node, ast.Name):
                assert node.id not in before - after, (name, node.lineno)
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("petctl"):
                assert not {alias.name for alias in node.names} & set(typing.__all__), (name, node.lineno)
    text = "from typing import (\n    A,\n    B,\n)\nfrom collections.abc import C, D\nfrom typing import E\nB(D)\n"
    bare = "from typing import B\n\n\n\nfrom collections.abc import D\n\nB(D)\n"
    assert without_types(text) == without_types(bare) == bare
    text = "from typing import A\nfrom typing import A, B as b, C as c\nc\n"
    assert without_types(text) == "from typing import A\nfrom typing import A, C as c\nc\n"


def test_the_causes_travel_without_words_for_people() -> None:
    archived = zipfile.ZipFile(io.BytesIO(agent_bytes())).read("petctl/causes.ini").decode()
    lines = [line for line in archived.splitlines() if not line.startswith((" ", "["))]
    assert {line.split(" =")[0] for line in lines} == {"match", "signals", "exit", "lasting"}
    whole, reduced = configparser.RawConfigParser(), configparser.RawConfigParser()
    whole.read(archive.PACKAGE / "causes.ini")
    reduced.read_string(archived)
    assert reduced.sections() == whole.sections()
    for name in whole.sections():
        assert all(whole[name][key] == value for key, value in reduced[name].items())
    program = 'from petctl.causes import find; print(find("x\\nOSError: [Errno 28] No space left on device"), end="")'
    with tempfile.TemporaryDirectory() as directory:
        assert run(program, archive.build_agent(Path(directory) / "agent.pyz")) == "no-space"


def test_the_operators_archive_leaves_out_what_it_never_imports_and_nothing_else() -> None:
    known = {Path(name) for name in SOURCES}
    waiting = [path for path in known if path.parent.name == "operator"]
    reached = set(waiting)
    while waiting:
        for module in _imported(PACKAGE.parent / waiting.pop()):
            path = Path(*module.split("."))
            found = {path.with_suffix(".py"), path / "__init__.py"} & known - reached
            waiting += found
            reached |= found
    with zipfile.ZipFile(io.BytesIO(operator_bytes())) as archive:
        here = {Path(name) for name in archive.namelist()}
    assert reached <= here
    assert {Path(name) for name in FOR_SUBMITTERS} == known - here


def _imported(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere in it; some of these are names in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_agent_fits_where_kubectl_keeps_a_copy_of_it() -> None:
    """The annotations of an object may have 262,144 bytes together; past that, `kubectl apply` refuses it."""
    made = manifests.free(manifests.agent_config("a" * 100, small_agent_bytes(manifests.STATE)), "n" * 63)
    assert len(json.dumps(made)) < 0.98 * 262_144
    assert len(small_agent_bytes(manifests.STATE)) < 0.8 * len(agent_bytes())


def test_the_small_agent_unpacks_itself_once_and_is_then_as_any_other(tmp_path: Path) -> None:
    small = tmp_path / "small.pyz"
    small.write_bytes(small_agent_bytes(str(tmp_path)))
    for words in ([], ["-I"]):
        done = subprocess.run([sys.executable, *words, small, "--help"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("Usage: petctl-agent")
    (unpacked,) = tmp_path.glob("agent-*.pyz")
    assert run("import petctl.elastic; print(petctl.__file__, end='')", unpacked).startswith(str(unpacked))
    unpacked.unlink()
    small.write_bytes(small_agent_bytes(str(tmp_path / "missing")))
    done = subprocess.run([sys.executable, small, "--help"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("petctl-agent: cannot be unpacked: ")


def test_the_agent_needs_nothing_that_is_not_in_it(tmp_path: Path) -> None:
    agent = archive.build_agent(tmp_path / "agent.pyz")
    files = [Path(name) for name in zipfile.ZipFile(agent).namelist() if name.endswith(".py")]
    names = [
        ".".join(file.with_suffix("").parts) for file in files if file.stem[0] != "_" and "startup" not in file.parts
    ]
    assert "petctl.agent.node.rounds" in names
    run(f"import importlib\nfor name in {names}: importlib.import_module(name)", agent)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """petctl-operator.pyz of the working tree."""
    return build_operator(tmp_path_factory.mktemp("pyz") / "petctl-operator.pyz")


def run(program: str, operator: Path) -> str:
    """In a Python that has nothing but its own library and the archive."""
    text = f"import sys; sys.path.insert(0, {str(operator)!r})\n{program}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_operator_is_the_same_bytes_each_time_and_fits_into_a_config_map(operator: Path) -> None:
    assert operator.read_bytes() == operator_bytes()
    assert operator.stat().st_size < 700_000
    assert operator.stat().st_mode & 0o777 == 0o755


def test_the_operator_says_that_a_kubeconfig_takes_more_than_it_has(operator: Path, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("{}")
    words = [sys.executable, "-I", "-S", str(operator), "--kubeconfig", str(tmp_path / "config")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"petctl-operator: reading the kubeconfig {tmp_path / 'config'} needs PyYAML")
    assert "Traceback" not in done.stderr


def test_the_operator_needs_nothing_that_is_not_in_it(operator: Path) -> None:
    room = archive.PACKAGE / "clusters/kubernetes/operator"
    paths = sorted(path.relative_to(archive.PACKAGE.parent) for path in room.rglob("*.py") if path.stem != "__init__")
    names = [".".join(path.with_suffix("").parts) for path in paths]
    assert "petctl.clusters.kubernetes.operator.reconcile" in names
    run(f"import importlib\nfor name in {names}: importlib.import_module(name)", operator)


def test_the_operator_starts_and_says_how_it_is_used(operator: Path) -> None:
    words = [sys.executable, "-I", "-S", str(operator)]
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and "--namespace" in done.stdout
    refused = subprocess.run([*words, "--no-such-option"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr


def test_a_python_that_is_too_old_is_named(operator: Path) -> None:
    program = "import runpy, sys; sys.version_info = (3, 10, 4, 'final', 0); runpy.run_path(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, operator], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "this needs Python 3.11 or newer, and here is 3.10\n")


def test_the_operator_makes_certificates_and_hands_out_the_agent(operator: Path) -> None:
    program = """
        from petctl.clusters.agent_archive import agent_bytes, small_agent_bytes
        from petctl.clusters.certificate import make_certificate
        assert b"PRIVATE KEY" in make_certificate(["localhost"], ["::1"]).key
        print(agent_bytes().hex())
    """
    agent = bytes.fromhex(run(textwrap.dedent(program), operator))
    assert agent == agent_bytes()
    assert "petctl/agent/node/agent.py" in zipfile.ZipFile(io.BytesIO(agent)).namelist()
