"""The causes that have a name: what the file says of them, and what they are found in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from petctl import causes
from petctl.agent.health.root_cause import cause_of, from_stderr

EXCERPTS = Path(__file__).parent / "agent" / "excerpts"


def excerpts() -> list[tuple[str, int, str]]:
    """(name, exit code or minus signal, text) of every failure that is kept; the name begins with its cause."""
    found = []
    for path in sorted(EXCERPTS.glob("*.txt")):
        parts = re.split(r"^== (.+) (-?\d+)\n", path.read_text(), flags=re.MULTILINE)
        found += [(name, int(code), text) for name, code, text in zip(*[iter(parts[1:])] * 3, strict=True)]
    return found


@pytest.mark.parametrize(("name", "code", "text"), excerpts(), ids=[name for name, _, _ in excerpts()])
def test_real_failures_have_the_right_name(name: str, code: int, text: str) -> None:
    """What real programs left behind, as an agent and as a reader of the log see it."""
    expected = name.split()[0]
    data = text.encode()
    message, traceback = from_stderr(data, killed=code < 0)
    signal = {-6: "SIGABRT", -9: "SIGKILL", -7: "SIGBUS", -11: "SIGSEGV"}[code] if code < 0 else ""
    assert cause_of(128 - code if code < 0 else code, signal, message, traceback, data) == expected


def test_every_cause_is_told_and_can_be_found() -> None:
    known = causes.known()
    assert len(known) > 50
    for name, cause in known.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and name not in ("signals", causes.TRANSIENT)
        assert cause.says and not cause.says.endswith(".") and cause.advice.endswith("."), name
        assert len(cause.says) < 120 and len(cause.advice) < 300, name
        assert cause.signs or cause.signals or cause.exits, name
    assert {causes.HANG, causes.PREPARE, causes.HOST_MEMORY} <= set(known)
    assert {"network", "ecc", "hang"} <= set(causes.transient())
    assert not {"missing-module", "syntax", "gpu-out-of-memory", "nan"} & set(causes.transient())


def test_words_that_are_looked_for_first_are_in_whatever_a_pattern_fits() -> None:
    for pattern, words in {
        "No space left": ["No space left"],
        r"\bMemoryError\b": ["MemoryError"],
        "one|two(s|es)?": ["one", "two"],
        "(one|two) three": [" three"],
        r"Xid .*: (48|63),": ["Xid "],
        "NET/IB ?: ?(Got|.*(error))": ["NET/IB"],
        "[Nn]on-?finite": ["finite"],
        r"a\.cu:\d+:.*Assertion": ["Assertion"],
        "ab+c{2}d": ["ab"],
        "(a(b)?c)*|ab": ["", "ab"],
    }.items():
        assert causes._words(pattern) == words, pattern
    for cause in causes.known().values():
        for sign in cause.signs:
            re.compile(sign.pattern)
            assert ".*" not in sign.pattern  # in a line of a megabyte that would take minutes
            assert all(sign.words), f"{cause.name}: {sign.pattern} is slow: no text is in all that it fits"


@pytest.mark.parametrize(
    ("sentence", "cause"),
    [
        ("there is no mpirun on this node's PATH; install Open MPI on every node", "mpirun-missing"),
        ("there is no /no/python on this node's PATH; name the interpreter with --python", "missing-program"),
        ("cannot start ./solver: No such file or directory", "missing-program"),
        ("cannot start ./solver: there is no such program on this node", "missing-program"),
        ("cannot start ./solver: Permission denied", "permission"),
        (
            "this node has no GPU, but the job asks for one process per GPU; use `procs: auto` or a number",
            "gpu-missing",
        ),
        ("the working directory /data/run does not exist on this node", "missing-file"),
    ],
)
def test_what_a_node_says_of_itself_has_a_name_too(sentence: str, cause: str) -> None:
    assert causes.find(sentence) == cause


def test_special_causes_go_before_general_ones() -> None:
    assert causes.find("RuntimeError: CUDA error: out of memory") == "gpu-out-of-memory"
    assert causes.find("RuntimeError: CUDA error: uncorrectable ECC error encountered") == "ecc"
    assert causes.find("RuntimeError: CUDA error: something new") == "gpu"
    assert (
        causes.find("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer") == "network"
    )
    assert (
        causes.find("[../unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation") == "collective-timeout"
    )
    assert causes.find("urlopen error [Errno -3] Temporary failure in name resolution") == "name-resolution"
    assert causes.find("ImportError: /x/a.so: undefined symbol: _ZN3c10") == "version-mismatch"
    assert causes.find("epoch 3 loss 0.21\nall is well") == ""


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--range", help="x" * 500)
parser.add_argument("--a-long-name-that-makes-the-usage-wrap", metavar="A_LONG_METAVARIABLE")
parsed = parser.parse_args()
parser.error("the rate must be positive")
"""
CLICK = """
import click
@click.command()
@click.option("--rate", type=float, required=True)
@click.option("--flag", is_flag=True)
@click.argument("name")
def main(rate, flag, name):
    raise click.UsageError("the rate must be positive")
main()
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (ARGPARSE, "--ra 1"),
        (ARGPARSE, "--rate x"),
        (ARGPARSE, "--other"),
        (ARGPARSE, "--rate"),
        (ARGPARSE, "--rate 1"),
        (CLICK, "--other"),
        (CLICK, "--rate x name"),
        (CLICK, "--rate"),
        (CLICK, "name"),
        (CLICK, "--rate 1"),
        (CLICK, "--flag=1"),
        (CLICK, "--rate 1 a b"),
        (CLICK, "--rate 1 name"),
    ],
)
def test_wrong_arguments_are_known_by_what_the_parser_says(program: str, words: str) -> None:
    done = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, check=False)
    message, traceback = from_stderr(done.stderr)
    assert done.returncode == 2 and cause_of(2, "", message, traceback, done.stderr) == "arguments", done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n"
        "╭─ Error ────────────────╮\n│ No such option: --foo  │\n╰────────────────────────╯",
        "╭─ Error ──────────────────╮\n│ Missing argument 'NAME'. │\n╰──────────────────────────╯",
        "│ Invalid value for '--rate': 'x' is not a valid float. │",
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n'
        "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--foo']",
    ],
)
def test_wrong_arguments_of_typer_and_transformers_are_known(text: str) -> None:
    message, traceback = from_stderr(text.encode())
    assert cause_of(1, "", message, traceback, text.encode()) == "arguments"


@pytest.mark.parametrize(
    "text",
    [
        "train.c:3:1: error: expected identifier\nmake: *** [train.o] Error 1",
        "a.py:3: error: Name 'x' is not defined",
        "usage of memory: 3 GiB\nserver: error: connection reset",
        "Error: No such file or directory",
        "| Missing option in table |",
    ],
)
def test_other_errors_are_not_taken_for_wrong_arguments(text: str) -> None:
    message, traceback = from_stderr(text.encode())
    assert cause_of(2, "", message, traceback, text.encode()) != "arguments"


def test_nan_is_no_part_of_other_words() -> None:
    assert causes.find("step 4 loss nan") == causes.find("Loss is NaN, stopping") == causes.find("loss=inf") == "nan"
    assert causes.find("\r 10%| loss=inf") == causes.find("'loss': nan, 'lr': 0.1") == "nan"
    assert causes.find("loss: tensor(inf, device='cuda:0')") == causes.find("the loss became infinite") == "nan"
    for line in ("loss info: 0.3", "banana is nan_to_num", "finance loss 0.1", "loss 0.3 infer 4"):
        assert causes.find(line) == "", line


@pytest.mark.parametrize(
    "line",
    [
        "Validation loss decreased (inf --> 0.693147).  Saving model ...",
        "val loss improved from inf to 0.32",
        "best val loss: inf",
        "GPU 3: clocks are reduced, SW Thermal Throttling",
        "mbind: Operation not permitted",
        "terminate called by user request",
        "http: ReadTimeout=30 ConnectTimeout=10",
        "set_mempolicy: Operation not permitted",
        "Error caught was: No module named 'triton'",
        "cublasCreate: CUBLAS_STATUS_SUCCESS",
        "prepare: 1000 files were tokenized",
        "ImportError: cannot import name 'a' from 'b' (most likely due to a circular import) (b.py)",
        "0 errors, 0 failures, no timeouts; 100%|##########| 10/10 [00:01<00:00,  9.9it/s, loss=0.3]",
    ],
)
def test_ordinary_lines_show_no_cause(line: str) -> None:
    assert causes.find(line) == ""
    assert cause_of(1, "", *from_stderr(line.encode()), line.encode()) == ""


@pytest.mark.parametrize("last", [b"", b"training failed\n"])
def test_who_is_warned_goes_on(last: bytes) -> None:
    warning = b"/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\n"
    warning += b"2026-01-01 00:00:00.0: W tensorflow/a.cc:64] libcudart.so.11.0: cannot open shared object file\n"
    warning += b"[rank0]:[W1116 14:19:01.564609571 socket.cpp:601] [c10d] Connection refused, trying again\n"
    warning += b"wandb: Network error (ReadTimeout), entering retry loop.\nConnection reset by peer, retrying in 5 s\n"
    data = warning + b"<frozen importlib._bootstrap>:241: RuntimeWarning: numpy.dtype size changed\n" + last
    assert cause_of(1, "", *from_stderr(data), data) == ""


@pytest.mark.parametrize(
    ("signal", "code", "name"),
    [
        ("SIGSEGV", 139, "segfault"),
        ("SIGKILL", 137, "killed"),
        ("SIGBUS", 135, "shared-memory"),
        ("", 127, "missing-program"),
        ("", 3, ""),
        ("signal 40", 168, ""),
    ],
)
def test_an_end_that_speaks_for_itself(signal: str, code: int, name: str) -> None:
    assert causes.ended(signal, code) == name


def test_each_line_has_one_cause_and_keeps_its_place() -> None:
    text = "a\nConnection refused\nb\nOSError: [Errno 28] No space left on device\nConnection reset by peer"
    found = causes.scan(text)
    assert [cause for _, _, cause in found] == ["network", "no-space", "network"]
    assert [text[start:end] for start, end, _ in found][1].endswith("on device")
    assert causes.scan("") == []


RAISED = b"""Connection refused, trying again
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("No space left on device")
%s
"""


@pytest.mark.parametrize(
    ("exception", "name"),
    [
        (b"ValueError: bad step", ""),  # it got over the refused connection, and code is no message
        (b"FileNotFoundError: [Errno 2] No such file or directory: 'a'", "missing-file"),
        (b"OSError: no use in retrying: Disk quota exceeded", "disk-quota"),
        (b"subprocess.CalledProcessError: Command 'a' returned non-zero exit status 1.", "network"),
        (b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "network"),
    ],
)
def test_the_last_exception_outranks_older_lines(exception: bytes, name: str) -> None:
    data = RAISED % exception
    assert cause_of(1, "", *from_stderr(data), data) == name


def test_the_first_exception_of_a_chain_counts_where_the_last_is_unknown() -> None:
    data = (
        RAISED % b"FileNotFoundError: [Errno 2] No such file or directory: 'a'"
        + b"\nDuring handling of the above exception, another exception occurred:\n\n"
        + (RAISED % b"RuntimeError: no data").replace(b"Connection refused, trying again\n", b"")
    )
    assert cause_of(1, "", *from_stderr(data), data.replace(b"Connection refused", b"")) == "missing-file"


def test_a_signal_that_comes_unasked_is_not_explained_by_lines(tmp_path: Path) -> None:
    data = b"OSError: [Errno 28] No space left on device\n"
    assert cause_of(139, "SIGSEGV", "", "", data) == cause_of(139, "", "", "", data) == "segfault"
    assert cause_of(134, "SIGABRT", "", "", data) == "no-space"
    thrown = b"terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: out of memory\n"
    assert cause_of(134, "SIGABRT", "", "", thrown) == "gpu-out-of-memory"
    assert cause_of(134, "SIGABRT", "", "", b"") == "aborted"
    (tmp_path / "out").write_bytes(data)
    assert cause_of(1, "", "", "", b"", str(tmp_path / "out")) == "no-space"
    assert cause_of(1, "", "", "", b"", str(tmp_path / "none")) == ""


def test_the_documentation_has_every_cause() -> None:
    text = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    rows = [f"| `{c.name}` | {c.says} | {'yes' if c.transient else ''} | {c.advice} |" for c in causes.known().values()]
    assert text.endswith("\n".join(["|---|---|---|---|", *rows, ""]))
