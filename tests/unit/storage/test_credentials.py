"""Keys come from the environment, from secrets and from files, in this order; configuration decides the endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import Refused, UsageError
from petctl.storage.stores.credentials import Surroundings, find_access, resolve
from petctl.storage.stores.location import parse_location

S3 = parse_location("s3://bucket/x")
AZURE = parse_location("az://acc/box/x")
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "token"}


def test_environment_before_secrets_before_files(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=file\naws_secret_access_key=f\n[two]\naws_access_key_id=second\naws_secret_access_key=s\n"
    )
    (tmp_path / ".aws" / "config").write_text("[default]\nregion=eu-west-1\n[profile two]\nregion=eu-west-2\n")
    home = {"HOME": str(tmp_path)}
    secrets = {"aws-access-key-id": "kept", "aws-secret-access-key": "k"}
    assert find_access(S3, Surroundings({**home, **KEYS}, secret=lambda name: secrets[name])).key_id == "id"
    assert find_access(S3, Surroundings(home, secret=lambda name: secrets.get(name, ""))).key_id == "kept"
    found = find_access(S3, Surroundings(home))
    assert (found.key_id, found.key, found.region) == ("file", "f", "eu-west-1")
    found = find_access(S3, Surroundings({**home, "AWS_PROFILE": "two"}))
    assert (found.key_id, found.region) == ("second", "eu-west-2")


def test_nothing_secret_in_a_repr() -> None:
    surroundings = Surroundings(KEYS)
    assert "hidden" not in repr(surroundings) + repr(find_access(S3, surroundings))


def test_half_a_key_is_an_error() -> None:
    with pytest.raises(UsageError, match="AWS_SECRET_ACCESS_KEY"):
        find_access(S3, Surroundings({"AWS_ACCESS_KEY_ID": "id"}))


def test_configuration_wins_and_the_longest_name_counts() -> None:
    stores = {
        "s3://": {"endpoint": "http://all/"},
        "s3://bucket": {"endpoint": "http://one", "region": "r"},
        "s3://buck": {"endpoint": "http://other"},
    }
    environ = {**KEYS, "AWS_ENDPOINT_URL": "http://environment", "AWS_REGION": "e"}
    assert find_access(S3, Surroundings(environ)).endpoint == "http://environment"
    found = find_access(S3, Surroundings(environ, stores))
    assert (found.endpoint, found.region) == ("http://one", "r")
    assert find_access(parse_location("s3://other/x"), Surroundings(environ, stores)).endpoint == "http://all"
    for wrong in ({"s3://": 5}, {"s3://": {"endpiont": "x"}}):
        with pytest.raises(UsageError, match="stores"):
            find_access(S3, Surroundings(environ, wrong))


def test_an_azure_key_is_only_for_its_account() -> None:
    key = "a2V5"
    assert find_access(AZURE, Surroundings({"AZURE_STORAGE_ACCOUNT_KEY": key})).key == key
    other = {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_ACCOUNT_KEY": key, "AZURE_STORAGE_ENDPOINT": "http://o"}
    found = find_access(AZURE, Surroundings(other))
    assert (found.key, found.endpoint) == ("", "https://acc.blob.core.windows.net")
    text = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={key}==;BlobEndpoint=http://b/"
    found = find_access(AZURE, Surroundings({"AZURE_STORAGE_CONNECTION_STRING": text}))
    assert (found.key, found.endpoint) == (f"{key}==", "http://b")
    assert find_access(AZURE, Surroundings(secret=lambda name: {"azure-acc-key": key}.get(name, ""))).key == key
    with pytest.raises(Refused, match="not valid base64"):
        find_access(AZURE, Surroundings({"AZURE_STORAGE_ACCOUNT_KEY": "no key"}))


def test_a_sas_is_preferred_to_a_key() -> None:
    location = parse_location("https://acc.blob.core.windows.net/box/x?sv=1&sig=abc")
    found = find_access(location, Surroundings({"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}))
    assert (found.key, found.sas) == ("", "sv=1&sig=abc")


def test_a_share_is_the_directory_that_configuration_names(tmp_path: Path) -> None:
    share = parse_location("https://acc.file.core.windows.net/team/data/x")
    with pytest.raises(UsageError, match="stores:"):
        resolve(share, Surroundings())
    stores = {"https://acc.file.core.windows.net/team": {"directory": str(tmp_path)}}
    assert resolve(share, Surroundings(stores=stores)).path == f"{tmp_path}/data/x"
