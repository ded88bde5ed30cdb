"""What the verbs of `act` hand on, and what they say; the runs, stores and clusters behind them are not asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.compat.act import data, overview, runs
from petctl.compat.act.cli import control
from petctl.compat.act.cli.flags import root
from petctl.compat.act.client import create_aml_client
from petctl.compat.act.compile import RunRequest
from petctl.errors import NotFound, UsageError

YAML = "experiment_name: mine\ngpu_per_node: 1\nplatform: itp\n"


class Handle:
    """A run that is only a name."""

    def __init__(self, name: str) -> None:
        self.id, self.executed = name, []  # type: tuple[str, list[Any]]

    def exec(self, argv: list[str], node: str | None = None) -> int:
        self.executed.append((argv, node))
        return 3


class Front:
    """`a` in a project, and what its verbs handed on."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture, self.calls, self.said = capture, [], ""  # type: Any, list[Any], str

    def __call__(self, *words: str, code: int = 0) -> str:
        self.capture.readouterr()
        self.calls.clear()
        ended = run_to_exit_code(words, root("a"), "a")
        out, self.said = self.capture.readouterr()
        assert ended == code, f"exit code {ended}\n{out}{self.said}"
        return str(out)

    def note(self, name: str, answer: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            named.pop("say", None)
            self.calls.append((name, *given, *named.items()))
            return answer(*given) if callable(answer) else answer

        return noted


@pytest.fixture
def a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Front:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("AML_CONFIG_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aux_data/aml").mkdir(parents=True)
    for name in ("aml", "eu"):
        (tmp_path / f"aux_data/aml/{name}.yaml").write_text(YAML)
    front = Front(capsys)
    monkeypatch.setattr(runs, "find_run", Handle)
    monkeypatch.setattr(runs, "submit", front.note("submit", Handle("mine_1_ab")))
    monkeypatch.setattr(runs, "resubmit", front.note("resubmit", lambda run, *_: Handle(f"{run}-again")))
    monkeypatch.setattr(runs, "abort", front.note("abort", lambda run: f"{run}: cancelling"))
    return front


def test_submit_hands_on_words_and_flags_and_prints_the_id(a: Front) -> None:
    assert a("-n", "8", "-c", "eu", "submit", "-hold", "python", "train.py", "--name", "two words") == "mine_1_ab\n"
    ((name, config, wish, new_code),) = a.calls
    assert (name, config.name, new_code) == ("submit", "eu", ("new_code", False))
    assert wish == RunRequest(["python", "train.py", "--name", "two words"], num_gpu=8, hold=True)
    assert "platform has no effect" in a.said
    assert "a q mine_1_ab" in a.said
    assert json.loads(a("s", "-single", "--new-code", "-ca", "fast", "-o", "json", "ls")) == {"id": "mine_1_ab"}
    assert a.calls[0][2:] == (RunRequest(["ls"], single=True, compile_args="fast"), ("new_code", True))


def test_a_misplaced_flag_is_told_and_the_command_runs_as_it_was_typed(a: Front) -> None:
    a("submit", "python", "train.py", "-n", "8")
    assert "a: -n 8 is python's; for 8 GPUs write: a -n 8 submit python train.py\n" in a.said
    assert a.calls[0][2].argv == ["python", "train.py", "-n", "8"]


@pytest.mark.parametrize(
    ("flag", "words"), [("-c", ["submit", "true"]), ("-f", ["u", "data"]), ("-rt", ["resubmit", "r1"])]
)
def test_a_configuration_that_does_not_exist_is_told_with_the_flag_that_names_it(
    a: Front, flag: str, words: list[str]
) -> None:
    a(flag, "nosuch", *words, code=2)
    assert a.said.startswith(f"a: {flag} nosuch: there is no file ")


def test_nothing_to_run_is_told_with_an_example(a: Front) -> None:
    a("submit", code=2)
    assert "a submit python train.py" in a.said


def test_s_alone_is_the_summary(a: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "summary", lambda config: {"cluster": config.cluster, "free_nodes": 3})
    assert a("s") == "{'cluster': 'local', 'free_nodes': 3}\n" == a("summary")
    assert json.loads(a("s", "-o", "json"))["free_nodes"] == 3


def test_several_runs_are_all_found_before_the_first_is_touched(a: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    assert a("resubmit", "r1", "r2", "-rt", "eu").split() == ["r1-again", "r2-again"]
    assert [call[1] for call in a.calls] == ["r1", "r2"]
    assert dict(a.calls[0][3:])["to"].name == "eu"
    a("a", "r1", "r2")
    assert a.said == "a: r1: cancelling\na: r2: cancelling\n"

    def find(run: str) -> Handle:
        if run == "r2":
            raise NotFound("there is no job 'r2'")
        return Handle(run)

    monkeypatch.setattr(runs, "find_run", find)
    for verb in ("abort", "resubmit"):
        a(verb, "r1", "r2", code=2)
        assert a.calls == []


def test_a_run_named_twice_is_taken_once(a: Front) -> None:
    assert a("resubmit", "r1", "r1") == "r1-again\n"
    a("abort", "r1", "r1")
    assert a.calls == [("abort", "r1")]


@pytest.mark.parametrize("verb", ["resubmit", "abort"])
def test_what_was_done_before_a_failure_is_told(a: Front, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def fail(run: str, *_: object, **__: object) -> Any:
        if run == "r3":
            raise UsageError("no room for r3")
        return Handle(f"{run}-done") if verb == "resubmit" else f"{run}-done"

    monkeypatch.setattr(runs, verb, fail)
    out = a(verb, "r1", "r2", "r3", code=2)
    assert (out if verb == "resubmit" else a.said).count("-done") == 2
    told = json.loads(a(verb, "-o", "json", "r1", "r2", "r3", code=2))
    assert told == ({"ids": ["r1-done", "r2-done"]} if verb == "resubmit" else {"r1": "r1-done", "r2": "r2-done"})
    assert json.loads(a.said)["error"] == "no room for r3"


def test_a_flag_that_a_verb_does_not_heed_is_told(a: Front) -> None:
    a("-n", "8", "-c", "eu", "-y", "resubmit", "r1")
    assert a.said.startswith("a: -n has no effect on resubmit\n") and a.said.count("no effect") == 1
    a("-f", "eu", "s", "ls")
    assert "a: -f has no effect on s\n" in a.said


def test_a_long_program_behind_c_is_no_name(a: Front) -> None:
    program = "import sys;" * 50
    a("submit", "python", "-c", program)
    assert a.calls[0][2].argv == ["python", "-c", program]
    a("-c", program, "submit", "ls", code=2)
    assert "there is no file" in a.said


def test_rm_asks_on_a_terminal_only(a: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "count", lambda config, path: 7)
    monkeypatch.setattr(data, "remove", a.note("remove", 7))
    a("rm", "data/coco")
    assert a.said == "a: removed data/coco: 7 files\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
    monkeypatch.setattr("click.confirm", a.note("confirm", False))
    a("rm", "data/coco", "output", code=2)
    assert [call[0] for call in a.calls] == ["confirm"]
    assert "data/coco (7 files)" in a.calls[0][1]
    a("rm", "-y", "data/coco")
    assert [call[0] for call in a.calls] == ["remove"]


def test_ssh_is_a_shell_or_a_command_on_a_node(a: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle("r1")
    monkeypatch.setattr(runs, "find_run", lambda run: handle)
    monkeypatch.setattr(control, "_at", lambda address: ("r1", "1"))
    a("ssh", "r1", "nvidia-smi", "-n", "1", code=3)
    a("ssh", "10.0.0.5", "--", "ls", "-h", code=3)
    a("ssh", "r1", code=3)
    assert handle.executed[:2] == [(["nvidia-smi", "-n", "1"], None), (["ls", "-h"], "1")]
    assert handle.executed[2][0][:2] == ["/bin/sh", "-c"]


def test_without_any_yaml_the_way_to_begin_is_told(a: Front, tmp_path: Path) -> None:
    for path in (tmp_path / "aux_data/aml").iterdir():
        path.unlink()
    a("submit", "ls", code=2)
    assert "aux_data/aml/aml.yaml" in a.said
    a("abort", "r1")
    assert json.loads(a("summary", "-o", "json"))["cluster"] == "local"
    a("-c", "nowhere", "submit", "ls", code=2)
    assert "nowhere" in a.said


# -- the Python API ----------------------------------------------------------------------------------------------------


def test_a_client_overrides_keys_and_hands_on(a: Front, capsys: pytest.CaptureFixture[str]) -> None:
    client = create_aml_client(cluster="eu", gpu_per_node=2, env={"A": "1"})
    assert (client.config.name, client.config.gpu_per_node, client.config.env) == ("eu", 2, {"A": "1"})
    assert client.submit("python train.py", num_gpu=4) == "mine_1_ab"
    assert client.submit(["python", "a b"]) == "mine_1_ab"
    assert [call[2] for call in a.calls] == [RunRequest(["python train.py"], 4), RunRequest(["python", "a b"])]
    assert capsys.readouterr().err.count("no effect") == 1  # told once
    client.submit(["python", "train.py", 0.1])  # type: ignore[list-item]
    assert a.calls[-1][2] == RunRequest(["python", "train.py", "0.1"])
    assert client.resubmit("r1") == "r1-again"
    with pytest.raises(UsageError, match="nosuchkey"):
        create_aml_client(nosuchkey=1)
    with pytest.raises(UsageError, match="from_cluster_folder"):
        client.upload("data/x", from_cluster="aml", from_cluster_folder="nowhere")
