"""What a script does before its imports is done before them in a forked worker too.

Each script prints what an installed module saw when it was imported. All ways to run it print the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.agent.conftest import INTERPRETERS
from tests.integration.agent.warm_scene import Ended, WarmScene, make_environment, play

# Takes down, when it is imported, all that an import can find in its process.
SEES = """
import decimal, locale, logging, multiprocessing, os, random, shared, signal, socket, sys, warnings
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
importer = os.getpid()
names = "GIVEN OTHER HF_HUB_OFFLINE HF_HOME NAME OF_DOTENV A SET LATE OMP_NUM_THREADS".split()
environment = [os.environ.get(name) for name in names]
native = [getenv(name.encode()) for name in names]
path, argv, cwd = list(sys.path), list(sys.argv[1:]), os.getcwd()
filters = [str(each) for each in warnings.filters]
settings = [sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL), socket.getdefaulttimeout()]
precision = decimal.getcontext().prec
hooks = [type(each).__name__ for each in sys.meta_path], sys.excepthook is sys.__excepthook__, type(sys.stdout).__name__
handlers = [str(signal.getsignal(number)).partition(" at ")[0] for number in (1, 2, 10, 15)]
start = multiprocessing.get_start_method(allow_none=True)
logs = [logging.root.level, len(logging.root.handlers)]
drawn = random.random() if shared.draws else None
patched = [shared.function(), shared.Class().method(), shared.value, hasattr(shared, "added"), "stub" in sys.modules]
all_seen = "environment native path argv cwd filters settings precision hooks handlers start logs drawn patched"
modules = [name for name in sys.modules if name.startswith(("sees", "shared", "late"))]
"""
SHARED = """
import os
importer = os.getpid()
draws, value = False, 1
def function(): return "function"
class Class:
    def method(self): return "method"
"""
MODULES = {
    "sees.py": SEES,
    "shared.py": SHARED,
    "late.py": "import os\nimporter = os.getpid()\nvalue = os.environ.get('LATE')",
    "sets.py": (
        "import os, sys, warnings, signal\nimporter = os.getpid()\nos.environ['SET'] = 'by the module'\n"
        "warnings.filterwarnings('ignore', 'from sets')\nsys.setrecursionlimit(1234)\nsys.path.append('/from/sets')\n"
        "signal.signal(signal.SIGUSR1, print)\nprint('sets is imported', flush=True)"
    ),
    "helper/__init__.py": "import os\nimporter = os.getpid()\nwhose = 'installed'",
    "uses_helper.py": "import os, helper\nimporter = os.getpid()\nwhose = helper.whose",
    "dotenv.py": "import os\ndef load_dotenv(): os.environ.setdefault('OF_DOTENV', 'a value of some length')",
}
PRINTS = """
import sees, os, sys
for name in sees.all_seen.split():
    print(name, vars(sees)[name])
"""
# Whether the modules named here were imported by another process; not a part of what is compared.
AHEAD = """
with open("ahead", "a") as file:
    print(*[name for name in %r.split() if sys.modules[name].importer != os.getpid()], file=file)
"""

# Statements before the import, and whether the module can be imported ahead nevertheless.
BEFORE = {
    "nothing": ("", True),
    "variable": ("import os; os.environ['HF_HUB_OFFLINE'] = '1'", True),
    "long value": ("import os; os.environ['HF_HOME'] = '/a/b' * 100", True),
    "changed variable": ("import os; os.environ['GIVEN'] = 'changed'", True),
    "no variable": ("import os; del os.environ['GIVEN']", True),
    "setdefault": ("import os; os.environ.setdefault('GIVEN', 'x'); os.environ.setdefault('OTHER', 'y')", True),
    "bytes": ("import os; os.environb[b'NAME'] = b'\\xff\\n\"\\\\'", True),
    "dotenv": ("from dotenv import load_dotenv; load_dotenv()", True),
    "variable of a rank": ("import os; os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['RANK']", True),
    "temporary variable": (
        "import os; os.environ['A'] = 'x' * 20; import shared; del os.environ['A']; import late",
        True,
    ),
    "path": ("import sys; sys.path.insert(0, '/nowhere'); sys.path.append('lib')", True),
    "no directory of the script": ("import sys; del sys.path[0]", True),
    "site": ("import site; site.addsitedir('/tmp')", True),
    "arguments": ("import sys; sys.argv.append('one more')", True),
    "directory": ("import os; os.chdir('/')", True),
    "filters": (
        "import warnings; warnings.filterwarnings('ignore', 'a (text|word)', DeprecationWarning, 'some')",
        True,
    ),
    "simple filter": ("import warnings; warnings.simplefilter('error', ResourceWarning)", True),
    "recursion": ("import sys; sys.setrecursionlimit(4321)", False),
    "locale": ("import locale; locale.setlocale(locale.LC_ALL, 'C')", False),
    "handler": ("import signal; signal.signal(signal.SIGTERM, lambda *a: None)", False),
    "ignored": ("import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)", False),
    "finder": (
        "import sys\nclass Finder:\n    find_spec = staticmethod(lambda *a: None)\nsys.meta_path.insert(0, Finder())",
        False,
    ),
    "stdout": (
        "import sys\nclass Tee:\n    write, flush = sys.stdout.write, sys.stdout.flush\nsys.stdout = Tee()",
        False,
    ),
    "excepthook": ("import sys; sys.excepthook = lambda *a: None", False),
    "excepthook below that of torch": (
        "import sys\ndef over(old):\n    def hook(*a): old(*a)\n"
        "    hook.__module__ = 'torch.distributed.distributed_c10d'\n    return hook\n"
        "sys.excepthook = over(lambda *a: None)",
        False,
    ),
    "start method": ("import multiprocessing; multiprocessing.set_start_method('spawn')", False),
    "timeout": ("import socket; socket.setdefaulttimeout(7)", False),
    "precision": ("import decimal; decimal.getcontext().prec = 5", False),
    "a module's own settings": (
        "import sets, os, sys; print(os.environ['SET'], sys.path[-1], sys.getrecursionlimit())",
        True,
    ),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_environment(tmp_path_factory.mktemp("environment") / "env", MODULES)


def runs(directory: Path, python: str, *words: str, env: dict[str, str] | None = None) -> list[Ended]:
    """Cold; cold and learnt from; forked twice; and forked in the next job, which only knows what was written down."""
    seen: list[Ended] = []
    argv = (python, *words)

    async def cold(scene: WarmScene) -> None:
        seen.append(await scene.cold(*argv))

    async def first(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(*argv), [])
        launch = scene.launch(*argv, local_rank=0)
        scene.workers.start([launch])
        seen.append(await scene.ended(launch))
        await scene.warmed()
        seen.extend([await scene.forked(*argv), await scene.forked(*argv)])
        assert not [each for each in scene.said if "started a worker again" in each], scene.said

    async def second(scene: WarmScene) -> None:
        launch = scene.launch(*argv)
        scene.warm.begin(launch, [])
        scene.workers.start([launch])
        seen.append(await scene.ended(launch))
        assert not [each for each in scene.said if "started a worker again" in each], scene.said

    for act in (cold, first, second):
        play(directory, act, {"GIVEN": "at the start", **(env or {})})
    return seen


@pytest.mark.parametrize("name", BEFORE)
def test_a_module_sees_what_the_script_did_before(tmp_path: Path, environment: str, own_cache: None, name: str) -> None:
    before, can_be_ahead = BEFORE[name]
    (tmp_path / "script.py").write_text(f"{before}\n{PRINTS}{AHEAD % 'sees'}")
    (tmp_path / "lib").mkdir()
    cold, *others = runs(tmp_path, environment, str(tmp_path / "script.py"), "argument", env={"OMP_NUM_THREADS": "3"})
    assert cold.code == 0, cold.err
    for other in others:
        assert other == cold
    ahead = (Path("/") if name == "directory" else tmp_path) / "ahead"
    lines = ahead.read_text().splitlines()
    ahead.unlink()
    assert lines[:2] == ["", ""]
    assert lines[2:4] == (["sees", "sees"] if can_be_ahead else ["", ""])


@pytest.mark.parametrize("python", INTERPRETERS)
def test_with_any_python(tmp_path: Path, own_cache: None, python: str) -> None:
    own = make_environment(tmp_path / "env", MODULES, python)
    before = (
        "import os, sys, warnings; os.environ['A'] = 'x' * 20; warnings.simplefilter('ignore'); sys.path[:0] = ['/x']"
    )
    (tmp_path / "script.py").write_text(f"{before}\n{PRINTS}{AHEAD % 'sees'}")
    cold, *others = runs(tmp_path, own, "script.py")
    assert cold.code == 0, cold.err
    assert others == [cold] * 4
    assert (tmp_path / "ahead").read_text().split() == ["sees", "sees"]


@pytest.mark.parametrize(
    "words", [["-m", "package.script"], ["-c", "import package.script"]], ids=["module", "command"]
)
def test_however_the_script_is_named(tmp_path: Path, environment: str, own_cache: None, words: list[str]) -> None:
    (tmp_path / "package").mkdir()
    before = "import os, sys; os.environ['A'] = 'x' * 20; sys.path[:0] = ['/x']"
    (tmp_path / "package" / "script.py").write_text(f"{before}\n{PRINTS}{AHEAD % 'sees'}")
    cold, *others = runs(tmp_path, environment, *words)
    assert cold.code == 0, cold.err
    assert others == [cold] * 4
    assert (tmp_path / "ahead").read_text().split() == ["sees", "sees"]


def test_a_package_of_the_users_own_before_an_installed_one(tmp_path: Path, environment: str, own_cache: None) -> None:
    (tmp_path / "lib" / "helper").mkdir(parents=True)
    (tmp_path / "lib" / "helper" / "__init__.py").write_text("import os\nimporter = os.getpid()\nwhose = 'own'")
    (tmp_path / "script.py").write_text(
        "import os, sys, shared; sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))\n"
        f"import uses_helper, late\nprint(uses_helper.whose, late.value)\n{AHEAD % 'shared uses_helper helper late'}"
    )
    cold, *others = runs(tmp_path, environment, "script.py")
    assert cold.out == "own None\n", cold.err
    assert others == [cold] * 4
    assert (tmp_path / "ahead").read_text().splitlines()[3] == "shared late"


def test_other_values_than_those_that_were_learnt_are_seen(tmp_path: Path, environment: str, own_cache: None) -> None:
    """A file says what the variable is to be: it is another one each time, and nothing can know that before."""
    value = tmp_path / "value"
    (tmp_path / "script.py").write_text(
        "import os, sys, shared\nos.environ['LATE'] = open('value').read()\nimport late\nprint(late.value)\n"
        + AHEAD % "late shared"
    )

    async def act(scene: WarmScene) -> None:
        argv = (environment, "script.py")
        scene.warm.begin(scene.launch(*argv), [])
        for number in range(5):
            value.write_text(f"number {number}")
            launch = scene.launch(*argv)
            scene.workers.start([launch])
            done = await scene.ended(launch)
            assert (done.code, done.out, done.err) == (0, f"number {number}\n", "")
            await scene.warmed()
        assert (
            scene.said[0] == "started a worker again without preloaded imports: LATE had changed when it imported late"
        )
        assert scene.said[1] == "late is left for each worker to import: it reads LATE while it is imported"
        assert len(scene.said) == 2

    play(tmp_path, act)
    assert (tmp_path / "ahead").read_text().splitlines()[3:] == ["shared", "shared"]


def test_a_variable_that_differs_from_rank_to_rank(tmp_path: Path, environment: str, own_cache: None) -> None:
    (tmp_path / "script.py").write_text(
        "import os, sys\nos.environ['LATE'] = os.environ['OTHER'] = os.environ['RANK']\nimport late, shared\n"
        f"print(late.value)\n{AHEAD % 'late shared'}"
    )

    async def act(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(environment, "script.py"), [])
        for _ in range(2):
            for rank in range(2):
                launch = scene.launch(environment, "script.py", local_rank=rank, RANK=str(rank))
                scene.workers.start([launch])
                assert (await scene.ended(launch)).out == f"{rank}\n"
                await scene.warmed()

    play(tmp_path, act)
    assert (tmp_path / "ahead").read_text().splitlines()[2:] == ["shared", "shared"]


def test_an_edited_script_is_learnt_again(tmp_path: Path, environment: str, own_cache: None) -> None:
    script = tmp_path / "script.py"
    body = f"import late, sys\nprint(late.value)\n{AHEAD % 'late'}"

    async def act(scene: WarmScene) -> None:
        scene.warm.begin(scene.launch(environment, "script.py"), [])
        for before, value in (("import os", None), ("import os", None), ("import os; os.environ['LATE'] = '1'", "1")):
            script.write_text(f"{before}\n{body}")
            launch = scene.launch(environment, "script.py")
            scene.workers.start([launch])
            assert (await scene.ended(launch)).out == f"{value}\n"
        assert scene.said == []

    play(tmp_path, act)
    play(tmp_path, lambda scene: _once(scene, environment, "1\n"))
    script.write_text(f"import os; os.environ['LATE'] = '2'\n{body}")
    play(tmp_path, lambda scene: _once(scene, environment, "2\n"))


async def _once(scene: WarmScene, python: str, out: str) -> None:
    launch = scene.launch(python, "script.py")
    scene.warm.begin(launch, [])
    scene.workers.start([launch])
    assert (await scene.ended(launch)).out == out
    assert scene.said == []


def test_no_value_of_a_variable_is_written_to_disk(tmp_path: Path, environment: str, own_cache: None) -> None:
    secret = "correct horse battery staple"
    (tmp_path / "script.py").write_text(
        "import os, sys\nos.environ['LATE'] = ' '.join(['correct', 'horse', 'battery', 'staple'])\nimport late\n"
        "print(late.value)"
    )
    cold, *others = runs(tmp_path, environment, "script.py")
    assert cold.out == f"{secret}\n"
    assert others == [cold] * 4
    files = [each for each in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if each.is_file()]
    assert files
    assert not any("horse" in each.read_text() for each in files)


def test_what_was_asked_to_be_preloaded_fits_too(tmp_path: Path, environment: str, own_cache: None) -> None:
    (tmp_path / "script.py").write_text("import os\nos.environ['LATE'] = 'set'\nimport late\nprint(late.value)")

    async def act(scene: WarmScene) -> None:
        for _ in range(3):
            assert (await scene.forked(environment, "script.py", preload=["late"])).out == "set\n"
            await scene.warmed()

    play(tmp_path, act)
