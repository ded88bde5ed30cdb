"""Storage accounts as ACT's users write them down, and how the rest of petctl gets to know them.

    account_name: vigstorage
    account_key: ...               the key, or
    sas_token: "?sv=..."           ... a SAS for the container, with or without the question mark
    container_name: data
    endpoint: http://127.0.0.1:10000/vigstorage      petctl's own: where the account is not Azure's

Values of keys are in no repr, message, job or record: `opened` keeps them among petctl's secrets, where supervisors and
coordinators find them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from petctl.compat.act.config.documents import checked
from petctl.errors import UsageError
from petctl.job.spec import values
from petctl.job.spec.problems import wrong
from petctl.job.spec.shape import Shape

FORM = "account_name: NAME\naccount_key: KEY\ncontainer_name: CONTAINER"


class Hidden(str):
    """Text that is not shown by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


class Account(NamedTuple):
    """One container, and what opens it. Without key and SAS it is opened as any other place that petctl is told of."""

    name: str
    container: str = ""
    key: Hidden = Hidden()
    sas: Hidden = Hidden()
    endpoint: str = ""
    file: Path | None = None


def read_account(path: Path, asker: str) -> Account:
    """The account that a file describes; `asker` says who wants it, for sentences."""
    if not path.is_file():
        beside = sorted(other.name for other in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        there = f"; in {path.parent} there are: {', '.join(beside)}" if beside else ""
        raise UsageError(f"{asker}: there is no file {path}{there}. It must contain:\n{_indented(FORM)}")
    said = checked(path, KEYS)
    if not said.get("account_name"):
        raise UsageError(f"{path}: account_name is missing; the file must contain:\n{_indented(FORM)}")
    return Account(
        name=str(said["account_name"]),
        container=str(said.get("container_name") or ""),
        key=Hidden(said.get("account_key") or ""),
        sas=Hidden(str(said.get("sas_token") or "").removeprefix("?")),
        endpoint=str(said.get("endpoint") or "").rstrip("/"),
        file=path,
    )


@contextmanager
def opened(accounts: Iterable[Account]) -> Iterator[None]:
    """Within it, `petctl.submission.stores.surroundings` knows endpoint and key of each of them."""
    from petctl.config.settings import more_stores
    from petctl.home import petctl_home

    found = list(dict.fromkeys(accounts))
    _check_agreement(found)
    for account in sorted(found, key=lambda one: bool(one.key)):  # a key is kept last, and then in place of a SAS
        _keep(petctl_home(), account)
    with more_stores({f"az://{one.name}": {"endpoint": one.endpoint} for one in found if one.endpoint}):
        yield


def _check_agreement(accounts: Iterable[Account]) -> None:
    """Several files may speak of one account, but not differently: petctl has one key for each."""
    by_name: dict[str, list[Account]] = {}
    for account in accounts:
        by_name.setdefault(account.name, []).append(account)
    for name, same in by_name.items():
        keys = {one.key for one in same if one.key}
        opening = keys or {one.sas for one in same if one.sas}
        if len(opening) > 1 or len({one.endpoint for one in same}) > 1:
            files = " and ".join(dict.fromkeys(str(one.file) for one in same))
            raise UsageError(
                f"{files} open the account {name} differently; petctl keeps one key per account: use the same "
                f"account_key and endpoint in all of them"
            )


def _keep(home: Path, account: Account) -> None:
    """Among petctl's secrets: the key, which opens all that a SAS opens, else the SAS, which petctl would prefer."""
    from petctl.secret_file import remove_secret, secret_value, set_secret

    key, sas = f"azure-{account.name}-key", f"azure-{account.name}-sas"
    if account.key:
        if secret_value(home, key) != account.key:
            set_secret(home, key, str(account.key))
        if _is_from_a_file(home, sas):
            with _alone(home):
                if _is_from_a_file(home, sas):
                    remove_secret(home, sas)
                    _note(home, sas, "")
    elif account.sas and secret_value(home, sas) != account.sas:
        with _alone(home):
            _note(home, sas, _mark(account.sas))  # first: a SAS without its mark would be taken for the user's own
            set_secret(home, sas, str(account.sas))


def _is_from_a_file(home: Path, sas: str) -> bool:
    """Whether this secret was left by an account file that had no key."""
    from petctl.secret_file import secret_value

    return _mark(secret_value(home, sas)) == _kept(home).get(sas)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Two processes that submit at once take turns."""
    from petctl.files import locked, make_private_directory

    make_private_directory(home / "act")
    with locked(home / "act" / "sas.lock"):
        yield


def _mark(value: str) -> str:
    return sha256(value.encode()).hexdigest()


def _kept(home: Path) -> Mapping[str, str]:
    """Which SAS came from account files: those of the user's own are never removed."""
    from petctl.files import read_json_or_none

    return read_json_or_none(home / "act" / "sas.json") or {}


def _note(home: Path, name: str, mark: str) -> None:
    from petctl.home import write_json

    kept = {**_kept(home), name: mark}
    write_json(home / "act" / "sas.json", {name: mark for name, mark in kept.items() if mark}, mode=0o600)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _secret(value: object) -> Hidden:
    """What was written is not repeated where it is wrong."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise wrong("expected the key or token without spaces")
    return Hidden(value)


def _name(value: object) -> str:
    name = values.single_line(value)
    if "/" in name:
        raise wrong("expected a name, without slashes")
    return name


def _endpoint(value: object) -> str:
    url = values.single_line(value)
    if not url.startswith(("http://", "https://")):
        raise wrong("expected a URL such as http://127.0.0.1:10000/ACCOUNT")
    return url


KEYS: Shape = {
    "account_name": _name,
    "account_key": _secret,
    "sas_token": _secret,
    "container_name": _name,
    "endpoint": _endpoint,
}
