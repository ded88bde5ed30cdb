"""Object storage costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("words", ["--help", "data --help", "data up --help", "list --help"])
def test_help_does_not_import_what_stores_need(words: str) -> None:
    call = f"try:\n    main({words.split()!r})\nexcept SystemExit as end:\n    assert not end.code"
    modules = modules_after(f"from petctl.cli.main import main\n{call}")
    assert "petctl.cli" in modules
    assert not modules & {
        "obstore",
        "petctl.storage.stores.location",
        "petctl.storage.stores.bucket",
        "http.client",
        "sqlite3",
        "rich",
    }


def test_locations_are_understood_without_obstore() -> None:
    modules = modules_after(
        "from petctl.storage.stores.location import parse_location\nparse_location('s3://bucket/x')"
    )
    assert "petctl.storage.stores.location" in modules
    assert "obstore" not in modules


def test_a_bucket_is_opened_without_the_standard_librarys_web_client() -> None:
    modules = modules_after(
        "from petctl.storage.stores.signed import open_bucket\nfrom petctl.storage.transfer.transfer import transfer"
    )
    assert "petctl.storage.stores.signed_requests" in modules
    assert not modules & {"http.client", "urllib.request", "obstore", "asyncio"}
