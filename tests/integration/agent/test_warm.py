"""The zygote: what it imports and what it leaves to the workers, and that it can fail without harm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from petctl.agent.warm import warm as module
from petctl.agent.workers import processes
from tests.integration.agent.conftest import INTERPRETERS, Bench, alive
from tests.integration.agent.warm_scene import WarmScene, make_environment, play
from tests.integration.waiting import DEADLINE, until

# Says whether it was forked, and which of the modules named as its arguments were imported by another process for it.
TELLS = """
import os, sys
ahead = []
assert not set(sys.argv[1:]) & set(sys.modules)
for name in sys.argv[1:]:
    try:
        __import__(name)
    except BaseException:
        pass
    if getattr(sys.modules.get(name), "importer", os.getpid()) != os.getpid():
        ahead.append(name)
with open("/proc/%d/comm" % os.getppid()) as file:
    print("forked" if file.read().strip() == "petctl-zygote" else "cold", *ahead, flush=True)
"""

MODULES = {
    "harmless.py": "import sub_harmless",
    "sub_harmless.py": "",
    "threaded.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "ranked.py": "import os\nrank = int(os.environ.get('RANK', 0))",
    "imports_ranked.py": "import harmless\ntry:\n    import ranked\nexcept ImportError:\n    pass",
    "asks_for_world.py": "import os\nalone = 'WORLD_SIZE' not in os.environ",
    "forks.py": "import subprocess\nchild = subprocess.Popen(['sleep', '600'])",
    "connects.py": "import socket\npair = socket.socketpair()",
    "fails.py": "raise RuntimeError('it never works')",
    "exits.py": "raise SystemExit(3)",
    "dies.py": "import os\nos._exit(9)",
    "imports_yours.py": "import helper",
    "kills_its_parent.py": (
        "import os, signal, time\n"
        "def kill():\n"
        "    parent = os.getppid()\n"
        "    os.kill(parent, signal.SIGKILL)\n"
        "    while os.getppid() == parent:\n"  # it ends when the system lets it run
        "        time.sleep(0.001)\n"
        "os.register_at_fork(after_in_child=kill)"
    ),
    "sets_variable.py": "import os\nos.environ['OF_MODULE'] = 'set'",
    "package/__init__.py": "",
    "package/part.py": "",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    modules = {name: f"import os\nimporter = os.getpid()\n{text}" for name, text in MODULES.items()}
    return make_environment(tmp_path_factory.mktemp("environment") / "env", modules)


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "tells.py").write_text(TELLS)
    return "tells.py"


def test_the_first_run_teaches_the_second(tmp_path: Path, python: str, script: str) -> None:
    argv = (python, script, "harmless", "package.part", "not_there")

    async def first(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [])
        assert not scene.warm.processes
        launch = scene.launch(*argv, local_rank=0)
        scene.workers.start([launch])
        assert (await scene.ended(launch)).out == "cold\n"
        assert scene.warm.processes  # and the next round is warm
        assert (await scene.forked(*argv)).out == "forked harmless package.part\n"

    async def second(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [])
        assert scene.warm.warming
        assert (await scene.forked(*argv)).out == "forked harmless package.part\n"
        await scene.warmed()
        assert scene.said == []

    play(tmp_path, first)
    play(tmp_path, second)


def test_workers_that_run_are_learnt_from_when_they_have_started_up(
    tmp_path: Path, python: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUIET", 0.1)
    (tmp_path / "stays.py").write_text("import harmless, time\nprint('up', flush=True)\ntime.sleep(600)")

    async def act(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(python, "stays.py"), [])
        scene.workers.start([scene.launch(python, "stays.py", local_rank=0)])
        assert await asyncio.wait_for(scene.changes.get(), DEADLINE)
        await scene.warmed()
        scene.workers.stop(5.0)
        await asyncio.wait_for(scene.stopped.wait(), DEADLINE)
        (worker,) = scene.warm.processes
        assert alive(worker)

    play(tmp_path, act)


def test_a_module_that_is_only_looked_for_is_not_imported_ahead(tmp_path: Path, python: str) -> None:
    (tmp_path / "looks.py").write_text(
        "import importlib.util, decimal\nprint(importlib.util.find_spec('harmless').name)"
    )

    async def act(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(python, "looks.py"), [])
        launch = scene.launch(python, "looks.py", local_rank=0)
        scene.workers.start([launch])
        await scene.ended(launch)
        assert scene.warm._preloads is not None
        assert "decimal" in scene.warm._preloads.names
        assert "harmless" not in scene.warm._preloads.names
        assert (await scene.forked(python, "looks.py")).out == "harmless\n"

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("threaded", "threaded is left for each worker to import: it starts a thread"),
        ("ranked", "ranked is left for each worker to import: it reads RANK"),
        ("asks_for_world", "asks_for_world is left for each worker to import: it reads WORLD_SIZE"),
        ("forks", "forks is left for each worker to import: it starts a process"),
        ("connects", "connects is left for each worker to import: it opens a connection"),
        ("fails", "--preload fails: cannot be imported: RuntimeError: it never works"),
        ("exits", "--preload exits: cannot be imported: SystemExit: 3"),
        ("nowhere", "--preload nowhere: not an installed package"),
        ("helper", "--preload helper: not an installed package"),
        (
            "imports_yours",
            "imports_yours is left for each worker to import: it imports helper, which would be the user's own",
        ),
    ],
)
def test_what_cannot_be_imported_ahead_is_left_out_and_said_once(
    tmp_path: Path, python: str, script: str, name: str, why: str
) -> None:
    (tmp_path / "helper.py").write_text("raise ImportError('this is the user\\'s own')")
    argv = (python, script, name, "harmless")

    async def act(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [name, "harmless"])
        await scene.warmed()
        for _ in range(2):
            assert (await scene.forked(*argv)).out == "forked harmless\n"
        (said,) = scene.said
        assert said.startswith(why)
        assert not processes.descendants(scene.warm.processes[0], processes.table())

    play(tmp_path, act)


def test_who_imports_what_is_kept_out_is_kept_out_too_and_that_is_remembered(
    tmp_path: Path, python: str, script: str, own_cache: None
) -> None:
    argv = (python, script, "imports_ranked", "harmless", "ranked")

    async def first(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [])
        launch = scene.launch(*argv, local_rank=0)
        scene.workers.start([launch])
        await scene.ended(launch)
        await scene.warmed()
        assert (await scene.forked(*argv)).out == "forked harmless\n"
        (said,) = scene.said
        assert said.startswith("ranked is left for each worker to import, with those that import it: it reads RANK")

    async def second(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [])
        assert (await scene.forked(*argv)).out == "forked harmless\n"
        assert scene.said == []

    play(tmp_path, first)
    play(tmp_path, second)
    (file,) = (Path(os.environ["XDG_CACHE_HOME"]) / "petctl" / "preload").iterdir()
    assert set(json.loads(file.read_text())["without"]) == {"ranked", "imports_ranked"}


def test_an_import_that_kills_the_zygote_leads_to_cold_starts(tmp_path: Path, python: str, script: str) -> None:
    async def act(scene: WarmScene) -> None:
        launch = scene.launch(python, script)
        scene.warm.begin(launch, ["dies"])
        scene.workers.start([launch])
        assert (await scene.ended(launch)).out == "cold\n"
        await scene.warmed()
        while scene.warm.processes:
            await asyncio.wait_for(scene.changes.get(), DEADLINE)
        assert scene.said[-1].startswith("workers on this node start without preloaded imports from now on")

    play(tmp_path, act)


def test_a_file_that_hides_a_module_makes_the_start_cold(tmp_path: Path, python: str, script: str) -> None:
    async def act(scene: WarmScene) -> None:
        assert (await scene.forked(python, script, preload=["package"])).out == "forked\n"
        (tmp_path / "package.py").write_text("")
        launch = scene.launch(python, script)
        scene.workers.start([launch])
        assert (await scene.ended(launch)).out == "cold\n"

    play(tmp_path, act)


def test_what_a_module_puts_into_the_environment_is_there(tmp_path: Path, python: str) -> None:
    (tmp_path / "prints.py").write_text(
        "import os\nbefore = os.environ.get('OF_MODULE')\nimport sets_variable\n"
        "print(before, os.environ['OF_MODULE'], os.environ['RANK'])"
    )

    async def act(scene: WarmScene) -> None:
        done = await scene.forked(python, "prints.py", preload=["sets_variable"], RANK="5")
        assert done.out == "None set 5\n"

    play(tmp_path, act)


def test_an_interpreter_that_ignores_the_startup_code_is_never_run_as_a_zygote(tmp_path: Path, script: str) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho run >> "{tmp_path}/runs"\nexec {sys.executable} -I "$@"\n')
    wrapper.chmod(0o755)

    async def act(scene: WarmScene) -> None:
        launch = scene.launch(str(wrapper), script)
        scene.warm.begin(launch, ["json"])
        scene.workers.start([launch])
        assert (await scene.ended(launch)).out == "cold\n"
        (said,) = scene.said
        assert said.endswith("from now on: the interpreter ignores PYTHONPATH or has no site module")

    play(tmp_path, act)
    assert (tmp_path / "runs").read_text().count("run") == 2


def test_another_environment_needs_another_zygote(tmp_path: Path, python: str, script: str) -> None:
    async def act(scene: WarmScene) -> None:
        await scene.forked(python, script)
        (before,) = scene.warm.processes
        scene.env["OF_THE_NODE"] = "changed"
        assert (await scene.forked(python, script)).out.startswith("forked")
        assert before not in scene.warm.processes or len(scene.warm.processes) == 2

    play(tmp_path, act)


def test_a_stop_does_not_wait_for_imports(tmp_path: Path, python: str, script: str) -> None:
    (slow,) = Path(python).parents[1].glob("lib/python3*/site-packages")
    (slow / "slow.py").write_text("import time; time.sleep(600)")

    async def act(scene: WarmScene) -> None:
        launch = scene.launch(python, script)
        scene.warm.begin(launch, ["slow"])
        scene.workers.start([launch])
        scene.workers.stop(600.0)
        await asyncio.wait_for(scene.stopped.wait(), DEADLINE)
        assert not Path(launch.out).read_text()
        assert not scene.workers.running

    play(tmp_path, act)


def test_the_workers_of_a_killed_zygote_are_taken_for_killed_and_a_new_one_is_there(
    tmp_path: Path, python: str, script: str
) -> None:
    (tmp_path / "stays.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)")

    async def act(scene: WarmScene) -> None:
        launch = scene.launch(python, "stays.py")
        scene.warm.begin(launch, ["harmless"])
        scene.workers.start([launch])
        await asyncio.get_running_loop().run_in_executor(
            None, until, lambda: "up" in Path(launch.out).read_text(), "the worker runs"
        )
        (zygote,) = scene.warm.processes
        (worker,) = scene.workers.running
        assert worker.process is None, scene.said
        os.kill(zygote, signal.SIGKILL)
        done = await scene.ended(launch)
        assert (done.code, done.signal) == (137, 9)
        assert scene.said == ["the zygote of this node's workers ended: killed by signal 9"]
        await asyncio.get_running_loop().run_in_executor(None, until, lambda: not alive(worker.pid), "it is dead")
        (another,) = scene.warm.processes
        assert another != zygote

    play(tmp_path, act)


def test_a_worker_of_which_a_dying_zygote_did_not_tell_is_not_started_twice(
    tmp_path: Path, python: str, script: str
) -> None:
    async def act(scene: WarmScene) -> None:
        done = await scene.forked(python, script, preload=["kills_its_parent"])
        assert (done.code, done.out) == (137, "")

    play(tmp_path, act)


def test_a_damaged_or_unwritable_memory_is_none(tmp_path: Path, python: str, script: str) -> None:
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "petctl"
    cache.write_text("in the way")

    async def act(scene: WarmScene) -> None:
        argv = (python, script, "harmless")
        scene.warm.begin(scene.launch(*argv), [])
        launch = scene.launch(*argv, local_rank=0)
        scene.workers.start([launch])
        await scene.ended(launch)
        assert (await scene.forked(*argv)).out == "forked harmless\n"

    play(tmp_path, act)


# -- with an agent ---------------------------------------------------------------------------------------------------

ROUNDS = """
import os, sys, time, harmless
with open("/proc/%d/comm" % os.getppid()) as file:
    print("forked" if file.read().strip() == "petctl-zygote" else "cold", os.environ["PETCTL_ROUND"], flush=True)
if os.environ["PETCTL_ROUND"] == "1":
    if os.environ["RANK"] == "0":
        sys.exit(1)
    time.sleep(600)
"""


@pytest.mark.parametrize("own", INTERPRETERS)
def test_a_restart_is_warm_and_leaves_nothing(bench: Bench, python: str, own: str) -> None:
    """Whatever Python the agent itself runs on."""
    (bench.directory / "rounds.py").write_text(ROUNDS)
    bench.open("script", [str(bench.directory / "rounds.py")], procs="2", restarts=1, python=python)
    node = bench.agent(python=own)
    assert bench.ended().state == "succeeded"
    assert {bench.line(rank, number=2) for rank in (0, 1)} == {"forked 2"}
    assert node.wait() == 0
    bench.nothing_left()


def test_without_warm_starts_there_is_no_zygote(bench: Bench, python: str) -> None:
    (bench.directory / "rounds.py").write_text(ROUNDS)
    bench.open("script", [str(bench.directory / "rounds.py")], restarts=1, python=python, warm=False, preload=["json"])
    bench.agent()
    assert bench.ended().state == "succeeded"
    assert bench.line(number=2) == "cold 2"


def test_a_program_that_is_python_is_warm_too(bench: Bench, python: str) -> None:
    code = f"{ROUNDS}"
    bench.open("program", [python, "-u", "-c", code], restarts=1)
    bench.agent()
    assert bench.ended().state == "succeeded"
    assert bench.line(number=2) == "forked 2"


def test_kill_9_of_the_agent_leaves_nothing(bench: Bench, python: str) -> None:
    (bench.directory / "stays.py").write_text("import harmless, time\nprint('up', flush=True)\ntime.sleep(600)")
    bench.open("script", [str(bench.directory / "stays.py")], python=python, preload=["harmless"])
    node = bench.agent()
    bench.line()
    until(lambda: len(bench.left()) == 4, "guardian, agent, zygote, worker")
    os.kill(node.agent, signal.SIGKILL)
    node.wait()
    bench.nothing_left()
