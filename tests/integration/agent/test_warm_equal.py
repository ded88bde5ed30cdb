"""A forked worker cannot be told from a started one: not by what it sees, and not by how it ends."""

from __future__ import annotations

import os
import shutil
import sys
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.integration.agent.conftest import INTERPRETERS
from tests.integration.agent.warm_scene import Ended, WarmScene, make_environment, play

PROBE = Path(__file__).with_name("warm_probe.py")
# All that the probe imports itself, and a few more: nothing of it may show.
PRELOAD = ["json", "multiprocessing", "tempfile", "threading", "asyncio", "logging", "concurrent.futures", "inspect"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The probe in a directory of its own, under several names."""
    directory = tmp_path / "pro gram"
    (directory / "package").mkdir(parents=True)
    (directory / "package" / "__init__.py").write_text("")
    shutil.copy(PROBE, directory / "package" / "probe.py")
    shutil.copy(PROBE, directory / "probe.py")
    (tmp_path / "link.py").symlink_to("pro gram/probe.py")
    return directory


def compare(directory: Path, *argv: str, cwd: Path, env: dict[str, str] | None = None) -> Ended:
    """Both ways, with the same outcome; which is returned."""
    seen: list[Ended] = []

    async def act(scene: WarmScene) -> None:
        seen.append(await scene.cold(*argv, cwd=cwd))
        seen.append(await scene.forked(*argv, cwd=cwd, preload=PRELOAD))
        seen.append(await scene.forked(*argv, cwd=cwd))

    play(directory, act, env)
    cold, *forked = seen
    for other in forked:
        difference = unified_diff(cold.out.splitlines(), other.out.splitlines(), lineterm="", n=8)
        print(*difference, sep="\n")
        assert other == cold
    return cold


@pytest.mark.parametrize("python", INTERPRETERS)
@pytest.mark.parametrize(
    "words",
    [
        ["-u", "probe.py", "a b", "children"],
        ["-u", "-m", "package.probe", "children"],
        ["-O", "-W", "ignore::UserWarning", "-X", "dev", "./probe.py"],
        ["-u", "../link.py"],
        [
            "-B",
            "-s",
            "-c",
            "import package.probe as p, json; print(json.dumps(p.everything(), indent=1, sort_keys=True))",
        ],
    ],
    ids=["script", "module", "options", "link", "command"],
)
def test_what_a_script_can_see(tmp_path: Path, program: Path, python: str, words: list[str]) -> None:
    done = compare(tmp_path, python, *words, cwd=program)
    assert (done.code, done.err) == (0, ""), done
    assert '"RANK": "7"' in done.out


def test_in_the_c_locale(tmp_path: Path, program: Path) -> None:
    done = compare(tmp_path, sys.executable, "-u", "probe.py", cwd=program, env={"LANG": "C", "LC_ALL": ""})
    assert "utf8_mode=1" in done.out


def test_with_paths_and_a_sitecustomize_of_the_users_own(tmp_path: Path, program: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text(
        "import os, sys; sys.mine = os.environ['RANK']; print('mine', sys.mine, __name__, __file__, flush=True)"
    )
    path = os.pathsep.join([str(tmp_path / "mine"), str(tmp_path / "nowhere")])
    done = compare(tmp_path, sys.executable, "-u", "probe.py", cwd=program, env={"PYTHONPATH": path})
    assert done.out.startswith("mine 7 sitecustomize")


ENDS = {
    "returns": "print('done')",
    "code": "import sys; sys.exit(3)",
    "text": "import sys; sys.exit('text')",
    "exception": "def f():\n    1 / 0\nf()",
    "chained": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('x') from e",
    "syntax": "def f(:\n    pass",
    "keyboard": "raise KeyboardInterrupt",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at once": "import os; print('lost?', end=''); os._exit(5)",
    "aborts": "import faulthandler, os; faulthandler.enable(); os.abort()",
    "in a thread": "import threading\nt = threading.Thread(target=lambda: print(1 / 0)); t.start(); t.join()",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_frame.f_code.co_name)\n1 / 0",
    "atexit": "import atexit, sys\natexit.register(lambda: print('__file__' in globals()))\nsys.exit(4)",
    "atexit after an error": "import atexit\natexit.register(lambda: print('__file__' in globals()))\n1 / 0",
    "daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "waits for threads": (
        "import threading\ngo = threading.Event()\n"
        "threading.Thread(target=lambda: (go.wait(), print('thread'))).start()\nprint('main')\ngo.set()"
    ),
    "warning": "import warnings\nwarnings.warn('careful')\nwarnings.warn('there', stacklevel=2)",
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_script_ends(tmp_path: Path, name: str) -> None:
    (tmp_path / "end.py").write_text(ENDS[name])
    done = compare(tmp_path, sys.executable, "end.py", cwd=tmp_path)
    assert done.code is not None


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = compare(tmp_path, sys.executable, "-u", "nowhere.py", cwd=tmp_path)
    assert done.code == 2 and "nowhere.py" in done.err


def test_what_modules_say_while_they_are_imported_is_said_by_each_worker(tmp_path: Path) -> None:
    text = "import sys\nprint('out')\nprint('err', file=sys.stderr)"
    python = make_environment(tmp_path / "env", {"talks.py": text})
    (tmp_path / "end.py").write_text("import talks; print('script')")

    async def act(scene: WarmScene) -> None:
        for _ in range(2):
            done = await scene.forked(python, "end.py", preload=["talks"])
            assert (done.out, done.err) == ("out\nscript\n", "err\n")

    play(tmp_path, act)


def test_chance_is_fresh_in_each_worker(tmp_path: Path) -> None:
    names = ["random", "uuid", "secrets", "tempfile", "multiprocessing.process"]
    (tmp_path / "chance.py").write_text(
        "import multiprocessing.process, random, uuid, secrets, tempfile\n"
        "print(random.random())\nprint(uuid.uuid4())\nprint(uuid.uuid1())\nprint(secrets.token_hex())\n"
        "print(next(tempfile._get_candidate_names()))\nprint(bytes(multiprocessing.process.current_process().authkey))"
    )

    async def act(scene: WarmScene) -> None:
        seen = [(await scene.forked(sys.executable, "chance.py", preload=names)).out.splitlines() for _ in range(2)]
        assert len(seen[0]) == len(names) + 1
        assert not any(first == second for first, second in zip(*seen, strict=True))

    play(tmp_path, act)
