"""PETCTL_LOG and --verbose: which level counts for which module, and what stands in a line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.errors import UsageError
from petctl.log_setup import parse_levels

BEGIN = """
import logging, sys
from petctl.log_setup import log_to_stderr
log_to_stderr(logging.INFO, "node 0")
logging.getLogger("petctl.rendezvous.net.client").debug("one")
logging.getLogger("petctl.agent.node.agent").debug("two")
logging.getLogger("petctl.agent.node.agent").info("three")
logging.getLogger("other").info("four")
"""


def logged(setting: str, program: str = BEGIN) -> str:
    environ = {**os.environ, "PETCTL_LOG": setting}
    done = subprocess.run([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE, text=True, check=True)
    return done.stderr


def test_levels_are_of_everything_and_of_modules() -> None:
    assert parse_levels("") == (None, {})
    assert parse_levels("debug") == (logging.DEBUG, {})
    assert parse_levels("INFO, rendezvous.net=debug,petctl.agent=error") == (
        logging.INFO,
        {"petctl.rendezvous.net": logging.DEBUG, "petctl.agent": logging.ERROR},
    )


@pytest.mark.parametrize("text", ["loud", "=debug", "agent=", "agent=9", "info;debug"])
def test_what_is_no_level_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="levels are debug, info, warning, error"):
        parse_levels(text)


def test_a_process_logs_as_the_variable_says() -> None:
    assert [line.split(": ")[-1] for line in logged("").splitlines()] == ["three"]
    assert [line.split(": ")[-1] for line in logged("rendezvous=debug").splitlines()] == ["one", "three"]
    assert logged("error") == ""
    (line,) = logged("agent.node=info").splitlines()
    assert line.endswith(" node 0 INFO petctl.agent.node.agent: three")


def test_a_process_of_its_own_ignores_a_wrong_variable_and_says_so() -> None:
    told = logged("loud").splitlines()
    assert "'loud' is not LEVEL or MODULE=LEVEL" in told[0] and told[1].endswith(": three")


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    program = (
        "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 2)\n" + BEGIN + f"open({str(tmp_path / 'x')!r}, 'w')"
    )
    logged("", program)
    assert (tmp_path / "x").exists()


def test_the_command_logs_with_verbose_and_refuses_a_wrong_variable(tmp_path: Path) -> None:
    environ = {**os.environ, "PETCTL_HOME": str(tmp_path)}

    def petctl(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "petctl", *words]
        return subprocess.run(command, env={**environ, **more}, capture_output=True, text=True, check=False)

    assert petctl("list").stderr.count("DEBUG") == 0
    assert "DEBUG petctl.clusters.base: cluster local is of kind local" in petctl("-v", "list").stderr
    assert "DEBUG" in petctl("list", PETCTL_LOG="clusters=debug").stderr
    wrong = petctl("list", PETCTL_LOG="loud")
    assert wrong.returncode == 2 and "'loud' is not LEVEL" in wrong.stderr


def test_every_logger_is_named_after_its_module_also_where_that_is_run() -> None:
    source = Path(__file__).parents[2] / "src"
    loggers = 0
    for path in source.rglob("*.py"):
        text = path.read_text("utf-8")
        for line in text.splitlines():
            if "= logging.getLogger(" in line:
                module = str(path.relative_to(source)).replace("/", ".")[:-3]
                runs = 'if __name__ == "__main__"' in text  # then __name__ is no name of petctl's
                assert (f'"{module}"' if runs else "__name__") in line, module
                loggers += 1
    assert loggers > 20
