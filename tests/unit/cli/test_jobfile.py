"""Where the volumes of a Batch AI job file are, as far as this machine knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from petctl.cli.job_file import kept_secrets
from petctl.compat.batchai.jobfile import Found, Volume
from petctl.compat.batchai.service.storage import create_account, create_drawer
from petctl.compat.batchai.service.volumes import resolver, secret_of
from petctl.errors import UsageError
from petctl.jobs.secrets import list_secrets, set_secret

SHARE = "https://acc.file.core.windows.net/logs"
SERVER = "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/fileservers/nfs"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def configure(**settings: object) -> None:
    Path("petctl.yaml").write_text(json.dumps(settings))


def test_what_the_configuration_says_comes_first(home: Path) -> None:
    configure(mounts={f"{SHARE}/": "/mnt/logs", f"{SHARE}/deep": "/mnt/deep", SERVER: "/mnt/nfs"})
    resolve = resolver(home)
    assert resolve(Volume("file", "acc", "logs", SHARE)) == Found("/mnt/logs", here=False)
    assert resolve(Volume("file", "acc", "logs", f"{SHARE}/a/b", "a/b")) == Found("/mnt/logs/a/b", here=False)
    assert resolve(Volume("file", "acc", "logs", f"{SHARE}/deep", "deep")) == Found("/mnt/deep", here=False)
    assert resolve(Volume("nfs", "", SERVER, SERVER, "a")) == Found("/mnt/nfs/a", here=False)


def test_then_the_accounts_of_this_machine(home: Path) -> None:
    from petctl.compat.batchai.service.resources import create_group

    create_group(home, "g", "", {})
    create_account(home, "acc", "g", "", "Standard_LRS", "StorageV2")
    create_drawer(home, "file", "acc", "logs")
    resolve = resolver(home)
    found = resolve(Volume("file", "acc", "logs", SHARE))
    assert isinstance(found, Found)
    assert (Path(found.directory).name, found.here) == ("logs", True)
    assert resolve(Volume("file", "acc", "logs", f"{SHARE}/a", "a")) == f"there is no directory a in {SHARE}/a"


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        (Volume("file", "acc", "logs", SHARE), "no storage account 'acc' with a share 'logs'"),
        (Volume("blob", "acc", "data", "https://acc.blob.x/data"), "no storage account 'acc' with a container 'data'"),
        (Volume("nfs", "", SERVER, SERVER), "no such file server"),
        (Volume("nfs", "", "nfs", "nfs"), "is not an id"),
    ],
)
def test_what_cannot_be_had_is_told_with_what_to_do(home: Path, volume: Volume, words: str) -> None:
    why = resolver(home)(volume)
    assert isinstance(why, str)
    assert words in why


@pytest.mark.parametrize(("value", "words"), [("logs", "begins with /"), (3, "must be a text"), ("", "must be a text")])
def test_a_setting_that_is_none(home: Path, value: object, words: str) -> None:
    configure(mounts={SHARE: value})
    with pytest.raises(UsageError, match=words):
        resolver(home)


def test_secrets_of_key_vaults(home: Path) -> None:
    configure(secrets={"https://v/secrets/a": "kept"})
    assert secret_of("https://v/secrets/a") == "kept"
    assert secret_of("https://v/secrets/b") == ""


def test_secrets_are_forgotten_when_the_job_is_not_submitted() -> None:
    set_secret("azure-acc-key", "the user's")
    values = {"job-file.A.1": "x", "azure-acc-key": "of the file"}
    with kept_secrets(values, ""):
        assert list_secrets() == ["azure-acc-key", "job-file.A.1"]
    with pytest.raises(UsageError), kept_secrets({"job-file.B.2": "y", **values}, ""):
        raise UsageError("no")
    assert list_secrets() == ["azure-acc-key", "job-file.A.1"]
