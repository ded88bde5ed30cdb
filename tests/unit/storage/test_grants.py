"""What the coordinator signs, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.errors import ProtocolError, Refused
from petctl.storage.core.grants import REQUESTS, Grant, Grants, check_path

S3 = Grant("s3", "http://127.0.0.1:1/bucket", "runs/job/", True, "us-east-1", "id", "secret", shown="s3://bucket")
AZ = Grant("az", "https://a.blob.core.windows.net/box", "x/", True, key_id="a", key="a2V5", shown="az://a/box")
GRANTS = Grants(
    {
        "s3": S3,
        "az": AZ,
        "ro": Grant("s3", S3.base, "in/", False, "us-east-1", "id", "secret"),
        "dir": Grant("file", "/d"),
    },
    {"later": "s3://other: found no key"},
)


def sign(grant: str, method: str, path: Any, **query: str) -> str:
    urls = GRANTS.sign(grant, [{"method": method, "path": path, "query": query}])["urls"]
    assert isinstance(urls[0], str)
    return urls[0]


def test_a_url_is_for_one_object_below_the_prefix() -> None:
    url = sign("s3", "PUT", "a b/c+d.txt")
    assert url.startswith("http://127.0.0.1:1/bucket/runs/job/a%20b/c%2Bd.txt?")
    assert "X-Amz-Expires=900" in url and "secret" not in url
    url = sign("az", "GET", "a")
    assert url.startswith("https://a.blob.core.windows.net/box/x/a?") and "sp=r&" in url and "sr=b" in url
    assert url.endswith("&spr=https")


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\0b", None, 7, "a" * 1025, "\udcff"]
)
def test_paths_that_lead_elsewhere(path: Any) -> None:
    with pytest.raises(Refused):
        sign("s3", "GET", path)
    with pytest.raises(Refused):
        check_path(path)


@pytest.mark.parametrize(
    ("grant", "method", "query"),
    [
        ("ro", "PUT", {}),
        ("ro", "DELETE", {}),
        ("ro", "POST", {"uploads": ""}),
        ("s3", "PATCH", {}),
        ("s3", "GET", {"acl": ""}),
        ("s3", "PUT", {"acl": ""}),
        ("s3", "PUT", {"tagging": ""}),
        ("s3", "POST", {"delete": ""}),
        ("s3", "PUT", {"partNumber": "x", "uploadId": "u"}),
        ("az", "PUT", {"comp": "lease"}),
        ("az", "PUT", {"comp": "metadata"}),
        ("az", "DELETE", {"comp": "x"}),
        ("nobody", "GET", {}),
    ],
)
def test_what_nodes_do_not_need_is_refused(grant: str, method: str, query: dict[str, str]) -> None:
    with pytest.raises(Refused):
        GRANTS.sign(grant, [{"method": method, "path": "a", "query": query}])


def test_hostile_calls() -> None:
    many = [{"method": "GET", "path": "a"}] * (REQUESTS + 1)
    calls: list[Any] = [many, "text", [None], [["GET", "a"]]]
    for requests in calls:
        with pytest.raises(ProtocolError):
            GRANTS.sign("s3", requests)
    odd: Any = ["s3"]
    with pytest.raises(Refused):
        GRANTS.sign(odd, [])
    with pytest.raises(ProtocolError):
        GRANTS.page("dir", "")


def test_a_key_that_is_missing_has_its_sentence() -> None:
    with pytest.raises(Refused, match="found no key"):
        GRANTS.sign("later", [])


def test_directories_are_named_and_their_paths_checked() -> None:
    assert GRANTS.sign("dir", [])["directory"] == "/d"
    with pytest.raises(Refused):
        GRANTS.sign("dir", [{"method": "GET", "path": "../etc/passwd"}])
    with pytest.raises(Refused, match="read-only"):
        GRANTS.sign("dir", [{"method": "PUT", "path": "a"}])


def test_nothing_secret_is_shown() -> None:
    shown = repr(S3) + repr(AZ)
    assert "secret" not in shown and "a2V5" not in shown
