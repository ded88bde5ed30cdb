"""A variable that looks like a secret is told; its value never is."""

from __future__ import annotations

import hashlib

import pytest

from petctl.bundle.secret_scan import secret_variables
from petctl.cli.failures import run_to_exit_code

VALUE = hashlib.sha256(b"1").hexdigest()[:40]


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "token"])
def test_names(name: str) -> None:
    assert secret_variables({name: VALUE}) == [name]


@pytest.mark.parametrize(
    "value", ["hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"[::-1], "postgres://u:" + VALUE + "@db.corp.net/x"]
)
def test_values(value: str) -> None:
    assert secret_variables({"WHERE": value}) == ["WHERE"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "1234567890"),
        ("KEY", "short"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/keys/account.json"),
        ("LR", "0.1"),
        ("HF_TOKEN", "your-token-here"),
        ("NCCL_SOCKET_IFNAME", "eth0,eth1,eth2,eth3"),
        ("MONKEY", "x" * 40),
    ],
)
def test_what_is_none(name: str, value: str) -> None:
    assert secret_variables({name: value}) == []


def test_it_is_told_and_the_value_is_not(home: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(["render", "-e", f"HF_TOKEN={VALUE}", "-e", "LR=1", "--", "true"]) == 0
    told = capfd.readouterr().err
    assert "petctl: HF_TOKEN looks like a secret" in told and "--secret HF_TOKEN=hf-token" in told
    assert VALUE not in told and "LR" not in told
    run_to_exit_code(["render", "-q", "-e", f"HF_TOKEN={VALUE}", "--", "true"])
    assert "looks like" not in capfd.readouterr().err
