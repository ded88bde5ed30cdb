"""Every form of a location is understood, and no form shows a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import UsageError
from petctl.storage.stores.location import Location, parse_location

SAS = "sv=2021-12-02&sp=rl&sig=abc%2Fdef%3D"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", Location("s3", "bucket")),
        ("s3://bucket/a/b", Location("s3", "bucket", "a/b")),
        ("s3://bucket/a/b/", Location("s3", "bucket", "a/b", slash=True)),
        ("s3://bucket/a b#?%.txt", Location("s3", "bucket", "a b#?%.txt")),
        ("gs://bucket/a", Location("gs", "bucket", "a")),
        ("az://account/container/a", Location("az", "container", "a", "account")),
        ("https://acc.blob.core.windows.net/box/a%20b", Location("az", "box", "a b", "acc")),
        (f"https://acc.blob.core.windows.net/box/a?{SAS}", Location("az", "box", "a", "acc", sas=SAS)),
        ("https://acc.file.core.windows.net/share/a", Location("share", "share", "a", "acc")),
        ("file:///tmp/a%20b", Location("file", path="/tmp/a b")),
        ("/tmp/x/", Location("file", path="/tmp/x", slash=True)),
        ("x?y", Location("file", path=str(Path.cwd() / "x?y"))),
    ],
)
def test_forms(text: str, expected: Location) -> None:
    assert parse_location(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "s3://", "s3:///x", "az://account", "az:///c", "ftp://x/y", "https://example.com/x", "file://host/x"),
        *(
            "s3://bucket/a//b",
            "s3://bucket/../x",
            "az://a/c/./x",
            "https://acc.blob.core.windows.net/box/a?x=1",
            "a\0b",
        ),
    ],
)
def test_wrong_ones_are_told_what_is_right(text: str) -> None:
    with pytest.raises(UsageError):
        parse_location(text)


def test_a_sas_is_never_shown() -> None:
    text = f"https://acc.blob.core.windows.net/box/a?{SAS}"
    location = parse_location(text)
    assert "sig" not in f"{location} {location!r}"
    with pytest.raises(UsageError) as error:
        parse_location(text.replace("box/a", "box/a//b"))
    assert "abc" not in str(error.value)
    with pytest.raises(UsageError) as error:
        parse_location(f"https://example.com/x?{SAS}")
    assert "abc" not in str(error.value)


def test_words_come_back() -> None:
    for text in ("s3://b/a/b", "s3://b/a/", "az://acc/c/x", "/tmp/x", "https://acc.file.core.windows.net/share/a"):
        assert str(parse_location(text)) == text
    assert str(parse_location("s3://b/a").below("c/d")) == "s3://b/a/c/d"
    assert str(parse_location("s3://b").below("c")) == "s3://b/c"
