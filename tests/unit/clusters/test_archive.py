"""The archives that petctl brings along: the same programs as the sources, in fewer bytes."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters import agent_archive as archive
from petctl.clusters.agent_archive import (
    FOR_SUBMITTERS,
    PACKAGE,
    agent_bytes,
    agent_files,
    build_operator,
    operator_bytes,
    without_docstrings,
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
        stripped = without_docstrings(text)
        assert program(stripped) == program(text), name
        assert without_docstrings(stripped) == stripped, name
        whole, bare = whole + len(text), bare + len(stripped)
    assert bare < 0.9 * whole


TRICKY = '''
"""Of the module."""  # but this
NAME = 1  # kept: why
"""Of NAME,
in two lines."""
TEXT = (
    """kept: it is
    # inside brackets"""
    "kept"
)
OTHER = \\
    """kept"""
PAIR = ["[", '(', {"}"}]; "kept: after a semicolon"

class Thing:
    \'\'\'Gone, with "quotes" and \\\'\\\'\\\' in it.\'\'\'
    def act(self): "kept, on the line of its def"

    def only(self, text=f"{NAME!r:>{10}} #"):
        "gone, with an ä"

    def raw(self):
        r"""Gone, though it has a prefix \\d."""
        return (
            ""
            """two" quotes ""\\""""
        )
'''
BARE = '''
"""Of the module."""  # but this
NAME = 1  # kept: why
"-"

TEXT = (
    """kept: it is
    # inside brackets"""
    "kept"
)
OTHER = \\
    """kept"""
PAIR = ["[", '(', {"}"}]; "kept: after a semicolon"

class Thing:
    "-"
    def act(self): "kept, on the line of its def"

    def only(self, text=f"{NAME!r:>{10}} #"):
        "-"

    def raw(self):
        "-"
        return (
            ""
            """two" quotes ""\\""""
        )
'''


def test_what_is_no_docstring_stays() -> None:
    assert without_docstrings(TRICKY) == BARE
    assert program(BARE) == program(TRICKY)
    for end in ("", "\n"):
        assert without_docstrings('def act():\n    """Why."""' + end) == 'def act():\n    "-"\n'
    assert without_docstrings("") == ""


def test_the_agent_has_its_sources_as_they_are() -> None:
    packed = zipfile.ZipFile(io.BytesIO(agent_bytes()))
    for name in archive._sources(archive.AGENT_PARTS):
        assert packed.read(name) == (PACKAGE.parent / name).read_bytes(), name


def test_the_causes_travel_with_the_agent(tmp_path: Path) -> None:
    program = 'from petctl.causes import find; print(find("x\\nOSError: [Errno 28] No space left on device"), end="")'
    assert run(program, archive.build_agent(tmp_path / "agent.pyz")) == "no-space"


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
    for made in manifests.agent_configs("a" * 100, agent_files(manifests.STATE)):
        assert len(json.dumps(manifests.free(made, "n" * 63))) < 0.9 * 262_144
    assert sum(map(len, agent_files(manifests.STATE).values())) < 0.8 * len(agent_bytes())


def test_an_agent_in_two_files_unpacks_itself_once_and_is_then_as_any_other(tmp_path: Path) -> None:
    small = tmp_path / archive.AGENT

    def write(directory: Path) -> None:
        for name, data in agent_files(str(directory)).items():
            (tmp_path / name).write_bytes(data)

    write(tmp_path)
    for words in ([], ["-I"]):
        done = subprocess.run([sys.executable, *words, small, "--help"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("Usage: petctl-agent")
    (unpacked,) = tmp_path.glob("agent-*.pyz")
    assert run("import petctl.elastic; print(petctl.__file__, end='')", unpacked).startswith(str(unpacked))
    unpacked.unlink()
    write(tmp_path / "missing")
    done = subprocess.run([sys.executable, small, "--help"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("petctl cannot be unpacked: ")


def test_an_operator_that_is_installed_unpacks_itself(tmp_path: Path) -> None:
    small = tmp_path / "operator.pyz"
    small.write_bytes(operator_bytes(str(tmp_path / "there")))
    (tmp_path / "there").mkdir()
    words = [sys.executable, "-I", "-S", str(small), "--help"]
    for _ in range(2):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "") and "--namespace" in done.stdout
    (unpacked,) = (tmp_path / "there").glob("operator-*.pyz")
    assert run("import petctl; print(petctl.__file__, end='')", unpacked).startswith(str(unpacked))


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
        from petctl.clusters.agent_archive import agent_bytes, agent_files
        from petctl.clusters.certificate import make_certificate
        assert b"PRIVATE KEY" in make_certificate(["localhost"], ["::1"]).key
        assert agent_files("/state")
        print(agent_bytes().hex())
    """
    agent = zipfile.ZipFile(io.BytesIO(bytes.fromhex(run(textwrap.dedent(program), operator))))
    own = zipfile.ZipFile(io.BytesIO(agent_bytes()))
    assert agent.namelist() == own.namelist() and "petctl/agent/node/agent.py" in own.namelist()
    for name in own.namelist():
        text = own.read(name).decode()
        assert agent.read(name).decode() == (
            without_docstrings(text) if name.startswith("petctl/") and name.endswith(".py") else text
        ), name
