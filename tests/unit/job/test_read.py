"""Job files: the user's words survive, and every problem is told with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.errors import SpecError
from petctl.job.file.read import FILE_FIELDS, job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.file.yaml_text import parse_yaml
from petctl.job.spec import Job, Rendezvous, Resources, Size
from petctl.job.spec.document import MOST_DEPTH, MOST_VALUES, Builder

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a job file into the current directory and returns its short name."""
    monkeypatch.chdir(tmp_path)

    def write_file(content: str | bytes, name: str = "job.yaml") -> str:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write_file


def problems(path: str, **sets: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read_job(path, sets)
    return str(caught.value).splitlines()


FULL = """\
name: mnist
nodes: 1:3
procs: 2
script: train.py
args: [--lr, 0.1]
env: {A: b}
secrets: {WANDB_API_KEY: wandb}
prepare: pip install -r requirements.txt
restarts: 5
grace: 10s
max_time: 2h
priority: -3
labels: {team: vision}
experiment: baseline
workspace: research
python: .venv/bin/python
warm: false
preload: [torch, torch.nn]
launcher: torchrun
cluster: local
cwd: sub
listen: 0.0.0.0
resources: {cpu: 1500m, memory: 16GiB, gpus: 1, shm: 500MB}
volumes: [{claim: data, path: /data, read_only: true}]
rendezvous: {join_timeout: 10m, last_call: 1, resize_interval: 30s, silence: 2s, fence_after: 60s}
logs: {cap: 2GiB}
"""
FULL_JOB = Job(
    name="mnist",
    nodes=Size(1, 3, 3),
    procs="2",
    script="train.py",
    args=["--lr", "0.1"],
    env={"A": "b"},
    secrets={"WANDB_API_KEY": "wandb"},
    prepare="pip install -r requirements.txt",
    restarts=5,
    grace=10.0,
    max_time=7200.0,
    priority=-3,
    labels={"team": "vision"},
    experiment="baseline",
    workspace="research",
    python=".venv/bin/python",
    warm=False,
    preload=["torch", "torch.nn"],
    launcher="torchrun",
    cluster="local",
    cwd="sub",
    listen="0.0.0.0",
    resources=Resources(cpu=1.5, memory=16 << 30, gpus=1, shm=500_000_000),
    volumes=[{"claim": "data", "path": "/data", "read_only": True}],
    rendezvous=Rendezvous(last_call=1.0, silence=2.0),
    log_cap=2 << 30,
)


def test_every_field(write: Write) -> None:
    assert read_job(write(FULL)) == FULL_JOB


def test_every_field_as_json(write: Write) -> None:
    assert read_job(write(json.dumps(job_to_dict(FULL_JOB)), "job.json")) == FULL_JOB


def test_json_written_with_tabs_escapes_and_a_byte_order_mark(write: Write) -> None:
    text = '\ufeff{\r\n\t"script": "t.py",\r\n\t"args": ["\\ud83d\\ude00", "\\/", 1e-3, 0.10, -0, true]\r\n}\r\n'
    assert read_job(write(text, "job.JSON")).command.words == ["t.py", "😀", "/", "1e-3", "0.10", "-0", "true"]


AWKWARD = ["0.10", "1e-3", "1e3", "012", "0o17", "0x1F", "1:30", "190:20:30", "no", "on", "Yes", "true", "1_000", ".5"]
AWKWARD += ["2024-01-01", "+1", "=", "<<", ".inf", "NaN", "y", "--lr=0.10", "1,000"]


@pytest.mark.parametrize("word", AWKWARD)
def test_the_users_words_survive(write: Write, word: str) -> None:
    job = read_job(write(f"script: a.py\nargs:\n  - {word}\nenv:\n  A: {word}\nlabels:\n  l: {word}\n"))
    assert job.command.words[1] == word
    assert job.env == {"A": word}
    assert job.labels == {"l": word}


def test_sizes_are_not_sexagesimal(write: Write) -> None:
    assert read_job(write("script: a.py\nnodes: 1:30\n")).nodes == Size(1, 30, 30)
    assert read_job(write("script: a.py\nnodes: 1:2:30\n")).nodes == Size(1, 2, 30)


def test_a_field_without_a_value_is_not_given(write: Write) -> None:
    assert read_job(write("script: a.py\nenv:\n  # A: b\nmax_time: null\nlogs:\nrendezvous:\n")) == Job(script="a.py")


def test_aliases(write: Write) -> None:
    job = read_job(write("script: a.py\nenv: &e {A: &v 1, B: *v}\nlabels: *e\n"))
    assert job.env == job.labels == {"A": "1", "B": "1"}


def test_all_problems_in_order_with_their_places(write: Write) -> None:
    path = write(
        "nam: x\n"
        "nodes: 3:1\n"
        "script: a.py\n"
        "module: b\n"
        "restarts: -1\n"
        "nodes: 2\n"
        "env:\n"
        "  A:\n"
        "  1B: 3\n"
        "logs: {cp: 3, cap: none}\n"
        "rendezvous: {silnce: 3, silence: x}\n"
        "command: x\n"
    )
    found = [line.split(": ")[:2] for line in problems(path)]
    assert found == [
        ["job.yaml:1:1", "nam"],
        ["job.yaml:2:8", "nodes"],
        ["job.yaml:4:1", "module"],
        ["job.yaml:5:11", "restarts"],
        ["job.yaml:6:1", "'nodes' is given twice; first on line 2"],
        ["job.yaml:8:5", "env.A"],
        ["job.yaml:9:3", "env.1B"],
        ["job.yaml:10:8", "logs.cp"],
        ["job.yaml:10:20", "logs.cap"],
        ["job.yaml:11:14", "rendezvous.silnce"],
        ["job.yaml:11:34", "rendezvous.silence"],
        ["job.yaml:12:1", "command"],
    ]


def test_the_same_problems_in_json(write: Write) -> None:
    path = write('{"script": "a.py",\n "restrts": 3,\n "nodes": 0, "nodes": 1,\n "env": {"A": null}}', "job.json")
    assert problems(path) == [
        "job.json:2:2: restrts: unknown field; did you mean 'restarts'?",
        "job.json:3:11: nodes: the minimum number of nodes must be 1 or more, got 0",
        "job.json:3:14: 'nodes' is given twice; first on line 3",
        'job.json:4:15: env.A: expected text, got nothing; write "" for empty text',
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "job.yaml: the file is empty"),
        ("# only a comment\n", "job.yaml: the file is empty"),
        ("- a\n- b\n", "job.yaml: expected fields such as script: train.py and nodes: 1:3, got a list"),
        ("hello world\n", "job.yaml: expected fields .* got 'hello world'"),
        ("nodes: 2\n", "job.yaml: no command: give one of script, module, program or shell"),
        ("script: a.py\nfoobarbaz: 1\n", "job.yaml:2:1: foobarbaz: unknown field; known here: allow_secrets, args"),
        ("script: a.py\nlog_cap: 1\n", r"job.yaml:2:1: log_cap: unknown field; write logs: \{cap: 1GiB\}"),
        ("script: a.py\nlogs: 3\n", "job.yaml:2:7: logs: expected a mapping with cap, got '3'"),
        ("script: a.py\n  nodes: 2\n", "job.yaml:2:8: not YAML: mapping values are not allowed .* in quotes"),
        ("script: a.py\n\tnodes: 2\n", "job.yaml:2:1: not YAML: .* indent with spaces, not tabs"),
        ("script: [a\n", r"job.yaml:2:1: not YAML"),
        ("script: a.py\n---\nscript: b.py\n", "job.yaml:2:1: a second document starts here"),
        ("script: !!python/object:os.system a\n", "job.yaml:1:9: the tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("env: !!set {a}\n", "job.yaml:1:6: the tag"),
        ("[a]: b\n", "job.yaml:1:1: expected a name"),
        ("~: b\n", "job.yaml:1:1: expected a name"),
        ("env: *nowhere\n", r"job.yaml:1:6: \*nowhere refers to nothing"),
        ("env: &a [*a]\n", r"job.yaml:1:10: \*a refers to nothing that is complete"),
        ("script: a.py\nname: \x01\n", "job.yaml:2:7: not YAML: .* character that YAML does not allow"),
    ],
)
def test_not_a_job_file(write: Write, text: str, line: str) -> None:
    (found,) = problems(write(text))
    assert re.match(line, found)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "job.json:1:1: not JSON: the text ends too early"),
        ("script: a.py", "job.json:1:1: not JSON: expected a value"),
        ('{"script": "a.py",}', "job.json:1:19: not JSON: no ',' is allowed before '}'"),
        ("{'script': 1}", "job.json:1:2: not JSON: expected a name in quotes"),
        ('{"script"\n "a.py"}', "job.json:2:2: not JSON: expected ':' after the name"),
        ('{"script": "a.py"\n "nodes": 1}', "job.json:2:2: not JSON: expected ',' or '}'"),
        ('{"script": "a.py"', "job.json:1:18: not JSON: expected ',' or '}'"),
        ('{"script": "a.py', "job.json:1:12: not JSON: unterminated string starting"),
        ('{"script": "a\nb"}', "job.json:1:14: not JSON: invalid control character"),
        ('{"script": "a.py"} x', "job.json:1:20: not JSON: unexpected text after the end"),
        ('{"script": NaN}', "job.json:1:12: not JSON: expected a value"),
        ("[1]", "job.json: expected fields .* got a list"),
        ("null", "job.json: the file is empty"),
    ],
)
def test_not_a_json_job_file(write: Write, text: str, line: str) -> None:
    (found,) = problems(write(text, "job.json"))
    assert re.match(line, found)


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    assert problems("nowhere.yaml") == ["nowhere.yaml: no such file"]
    (tmp_path / "dir.yaml").mkdir()
    assert problems("dir.yaml") == ["dir.yaml: is a directory, not a job file"]
    assert "cannot be read" in problems("a\0b.yaml")[0]
    assert problems(write(b"script: a.py\nname: \xff\xfe\n")) == ["job.yaml:2: not UTF-8 text; save the file as UTF-8"]
    assert "larger than 1 MiB" in problems(write("#" * ((1 << 20) + 1)))[0]
    assert "cannot be read" in problems("/dev/null/job.yaml")[0]
    assert "the file is empty" in problems("/dev/null")[0]
    assert "larger than 1 MiB" in problems("/dev/zero")[0]


def test_a_bomb_of_aliases_is_refused(write: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (found,) = problems(write("\n".join(lines)))
    assert re.match(rf"job.yaml:\d+:\d+: the file has more than {MOST_VALUES} values", found)


def test_a_tower_of_aliases_is_refused(write: Write) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 400)]
    assert problems(write("\n".join(lines))) == [f"job.yaml:{MOST_DEPTH}:12: nested more than {MOST_DEPTH} levels deep"]


@pytest.mark.parametrize("name", ["job.yaml", "job.json"])
def test_deep_nesting_is_refused(write: Write, name: str) -> None:
    (found,) = problems(write("[" * 500_000, name))
    assert found == f"{name}:1:{MOST_DEPTH + 1}: nested more than {MOST_DEPTH} levels deep"


def test_a_problem_inside_an_alias_is_placed_where_it_is_written(write: Write) -> None:
    assert problems(write("script: a.py\nlabels: &x\n  a: []\nenv: *x\n")) == [
        "job.yaml:3:6: env.a: expected text, got a list",
        "job.yaml:3:6: labels.a: expected text, got a list",
    ]


def test_the_slow_loader_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    text = "a: 0.10\nb: \nc: ''\nd: [x, ~]\n"
    fast = parse_yaml(text, Builder("fast")).root
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert parse_yaml(text, Builder("slow")).root == fast == {"a": "0.10", "b": None, "c": "", "d": ["x", None]}


def test_from_a_mapping() -> None:
    data: dict[str, Any] = {"script": "a.py", "args": [1, 0.5], "nodes": 2, "logs": {"cap": 4096}, "env": {"A": 1}}
    before = json.dumps(data)
    assert job_from_dict(data) == Job(script="a.py", args=["1", "0.5"], nodes=2, log_cap=4096, env={"A": "1"})
    assert json.dumps(data) == before
    assert job_from_dict({"shell": "echo ${HOME} $${X}"}).command.words == ["echo ${HOME} $${X}"]


def test_problems_of_a_mapping_name_where_it_came_from() -> None:
    with pytest.raises(SpecError) as caught:
        job_from_dict({"nods": 2, "logs": {"cap": "x"}, 3: 4}, where="jobs/a/job.json")  # type: ignore[dict-item]
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["jobs/a/job.json", "nods"],
        ["jobs/a/job.json", "3"],
        ["jobs/a/job.json", "no command"],
        ["jobs/a/job.json", "logs.cap"],
    ]
    with pytest.raises(SpecError, match="here: expected a mapping of fields"):
        job_from_dict([], where="here")  # type: ignore[arg-type]


def test_written_short() -> None:
    assert job_to_dict(Job(script="a.py")) == {"script": "a.py"}
    assert job_to_dict(Job(program=["a", "b"], nodes=2, procs="gpu", max_time=5400, rendezvous={"silence": 0.5})) == {
        "program": ["a", "b"],
        "nodes": 2,
        "procs": "gpu",
        "max_time": "1h30m",
        "rendezvous": {"silence": 0.5},
    }
    assert job_to_yaml(Job(name="x", module="a.b", args=["1"])) == "name: x\nmodule: a.b\nargs:\n- '1'\n"


def test_what_is_written_is_not_shared_with_the_job() -> None:
    job = Job(program=["a"], env={"A": "b"})
    data = job_to_dict(job)
    data["program"].append("c")
    data["env"]["B"] = "d"
    assert job == Job(program=["a"], env={"A": "b"})


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
DURATIONS = st.one_of(st.integers(1, 10**6), st.floats(1e-6, 1e6))
COMMANDS = st.one_of(
    st.builds(lambda word, more: {"script": "a" + word, "args": more}, TEXTS, st.lists(TEXTS, max_size=3)),
    st.builds(lambda word, more: {"module": "a" + word, "args": more}, TEXTS, st.lists(TEXTS, max_size=3)),
    st.builds(lambda word, more: {"program": ["a" + word, *more]}, TEXTS, st.lists(TEXTS, max_size=3)),
    st.builds(lambda word: {"shell": "a" + word}, TEXTS),
)
JOBS = st.builds(
    lambda command, **fields: Job(**command, **fields),
    COMMANDS,
    name=st.from_regex(r"([A-Za-z0-9][A-Za-z0-9._-]{0,10})?", fullmatch=True),
    nodes=st.lists(st.integers(1, 99), min_size=3, max_size=3).map(lambda n: Size(*sorted(n))),
    procs=st.one_of(st.integers(1, 64), st.sampled_from(["cpu", "gpu", "auto"])),
    env=st.dictionaries(NAMES, TEXTS, max_size=3),
    labels=st.dictionaries(NAMES, TEXTS, max_size=3),
    prepare=TEXTS,
    cwd=TEXTS,
    grace=DURATIONS,
    log_cap=st.integers(1, 1 << 40),
    rendezvous=st.builds(lambda s, j: Rendezvous(silence=s, fence_after=s * 2, join_timeout=j), DURATIONS, DURATIONS),
)


@settings(deadline=None)  # a busy machine is not a failure
@given(JOBS)
def test_a_job_survives_being_written_and_read(job: Job) -> None:
    assert job_from_dict(job_to_dict(job)) == job
    # ${NAME} in texts is a matter of test_fill.py; a mapping has none.
    assert job_from_dict(json.loads(json.dumps(job_to_dict(job)))) == job
    root = parse_yaml(job_to_yaml(job), Builder("job.yaml")).root
    assert job_from_dict(root) == job  # type: ignore[arg-type]


ODD_TEXTS = ["a\x85b", "a\u2028", "\u2029b", "a\rb", "a\r\nb", "a\nb\n", "\n a", "a \n", "\ta"]
ODD_TEXTS += ["\x1b[31m", "😀", "null", "", "- a", "#a"]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_survive_being_written_as_yaml(write: Write, text: str) -> None:
    job = Job(program=["p", text, "x" * 200 + " " + text], env={"A": text}, prepare=text)
    assert read_job(write(job_to_yaml(job))) == job


def test_odd_names_stay_on_one_line(write: Write) -> None:
    assert problems(write('script: a.py\nenv: {"A\\e[31m\\n": 1}\n"x\\r": 2\n')) == [
        "job.yaml:2:7: env.'A\\x1b[31m\\n': a name in the environment has letters, digits, '_', '.' and '-', "
        "and begins with a letter or '_'",
        "job.yaml:3:1: 'x\\r': unknown field; known here: " + ", ".join(sorted(FILE_FIELDS)),
    ]
