"""Storage accounts: their files, and how petctl's own stores get to know them."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from petctl.compat.act.config import accounts
from petctl.compat.act.config.accounts import Account, Hidden, opened, read_account
from petctl.errors import UsageError
from petctl.secret_file import list_secrets, secret_value, set_secret
from petctl.storage.stores.credentials import find_access
from petctl.storage.stores.location import parse_location
from petctl.submission.stores import surroundings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """petctl's own directory, and no word of the user's configuration or environment."""
    for name in ("ACCOUNT", "KEY", "ACCOUNT_KEY", "SAS_TOKEN", "CONNECTION_STRING", "ENDPOINT"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def account(text: str) -> Account:
    path = Path("account.yaml").absolute()
    path.write_text(text)
    return read_account(path, "config_param.data_folder")


def refused(text: str) -> str:
    with pytest.raises(UsageError) as error:
        account(text)
    return str(error.value)


def test_all_keys() -> None:
    found = account(
        "account_name: vig\naccount_key: a2V5\nsas_token: ?sv=1&sig=x\ncontainer_name: box\nendpoint: http://h:1/vig/\n"
    )
    assert found[:5] == ("vig", "box", "a2V5", "sv=1&sig=x", "http://h:1/vig")
    assert account("account_name: vig\nsas_token: sv=1&sig=x\n").sas == "sv=1&sig=x"  # no question mark is fine
    assert account("account_name: 12345\ncontainer_name: 1\n")[:2] == ("12345", "1")


def test_wrong_files_are_told_without_their_secrets() -> None:
    said = refused("account_nam: vig\naccount_key: [hush]\nsas_token: hush hush\nendpoint: h\n")
    assert "account.yaml:1:1: account_nam: unknown field; did you mean 'account_name'?" in said
    assert "account_key: expected the key or token without spaces" in said
    assert "endpoint: expected a URL" in said
    assert "hush" not in said
    assert refused("hush\n").endswith("account.yaml: expected keys and values, got a text instead")
    assert "hush" not in refused('account_key: "hush\n')
    assert "account_name is missing; the file must contain:" in refused("container_name: box\n")
    with pytest.raises(UsageError, match="data_folder: there is no file"):
        read_account(Path("none", "account.yaml").absolute(), "data_folder")


def test_no_secret_is_shown() -> None:
    found = account("account_name: vig\naccount_key: a2V5\nsas_token: ?sv=1&sig=x\n")
    assert "a2V5" not in repr(found)
    assert "sig" not in repr(found)
    assert repr(Hidden("x")) == "'***'"


def test_opened_makes_key_and_endpoint_known(home: Path) -> None:
    location = parse_location("az://vig/box/data")
    one = Account("vig", "box", Hidden("a2V5"), Hidden("sv=1&sig=x"), "http://h:1/vig")
    with opened([one, one]):
        access = find_access(location, surroundings(home))
        assert (access.endpoint, access.key, access.sas) == ("http://h:1/vig", "a2V5", "")
        with opened([Account("other", "box", endpoint="http://h:1/other")]):
            assert find_access(location, surroundings(home)).endpoint == "http://h:1/vig"
    after = find_access(location, surroundings(home))
    assert (after.endpoint, after.key) == ("https://vig.blob.core.windows.net", "a2V5")  # supervisors find the key
    assert stat.S_IMODE((home / "secrets.json").stat().st_mode) == 0o600


def test_a_changed_key_replaces_the_old_one(home: Path) -> None:
    for key in ("a2V5", "bmV3"):
        with opened([Account("vig", key=Hidden(key))]):
            assert secret_value(home, "azure-vig-key") == key
    before = (home / "secrets.json").stat().st_mtime_ns
    with opened([Account("vig", key=Hidden("bmV3"))]):
        assert (home / "secrets.json").stat().st_mtime_ns == before  # nothing to write


def test_a_key_takes_the_place_of_a_sas_that_came_from_such_a_file(home: Path) -> None:
    location = parse_location("az://vig/box/data")
    with opened([Account("vig", sas=Hidden("sv=1&sig=x"))]):
        assert find_access(location, surroundings(home)).sas == "sv=1&sig=x"
    assert "sig" not in (home / "act" / "sas.json").read_text()
    with opened([Account("vig", key=Hidden("a2V5"))]):
        assert find_access(location, surroundings(home)).key == "a2V5"
    assert list_secrets(home) == ["azure-vig-key"]
    assert json.loads((home / "act" / "sas.json").read_text()) == {}


def test_a_sas_of_the_user_s_own_stays(home: Path) -> None:
    set_secret(home, "azure-vig-sas", "sv=1&sig=own")
    with opened([Account("vig", key=Hidden("a2V5"))]):
        assert find_access(parse_location("az://vig/box/d"), surroundings(home)).sas == "sv=1&sig=own"


def test_files_that_disagree_are_refused(home: Path) -> None:
    one, two = Account("vig", key=Hidden("a2V5"), file=Path("a")), Account("vig", key=Hidden("bmV3"), file=Path("b"))
    with pytest.raises(UsageError, match="a and b open the account vig differently"), opened([one, two]):
        pass
    key, sas = Account("vig", "box", Hidden("a2V5")), Account("vig", "other", sas=Hidden("sv=1&sig=x"))
    with opened([sas, key]):  # a key opens both
        assert secret_value(home, "azure-vig-key") == "a2V5"
        assert secret_value(home, "azure-vig-sas") == ""


def test_nothing_to_keep_writes_nothing(home: Path) -> None:
    with opened([Account("vig", "box")]):
        assert not any(home.glob("*"))


def test_a_sas_that_was_kept_by_a_killed_process_is_known_as_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(home: Path, name: str, value: str) -> None:
        set_secret(home, name, value)
        raise KeyboardInterrupt

    monkeypatch.setattr("petctl.secret_file.set_secret", killed)
    with pytest.raises(KeyboardInterrupt), opened([Account("vig", sas=Hidden("sv=1&sig=x"))]):
        pass
    monkeypatch.undo()
    monkeypatch.setenv("PETCTL_HOME", str(home))
    with opened([Account("vig", key=Hidden("a2V5"))]):
        assert list_secrets(home) == ["azure-vig-key"]


def test_many_at_once_forget_no_mark_and_remove_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = accounts._kept

    def slowly(home: Path) -> Mapping[str, str]:
        found = kept(home)
        time.sleep(0.01)
        return found

    monkeypatch.setattr(accounts, "_kept", slowly)

    def submit(account: Account) -> None:
        with opened([account]):
            pass

    names = [f"vig{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, [Account(name, sas=Hidden(f"sig={name}")) for name in names]))
        assert len(json.loads((home / "act" / "sas.json").read_text())) == 8
        list(pool.map(submit, [Account(name, key=Hidden("a2V5")) for name in names for _ in range(2)]))
    assert list_secrets(home) == [f"azure-{name}-key" for name in names]
