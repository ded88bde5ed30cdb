"""Code at an http address: archives and scripts, and everything that can be wrong with an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.bundle import take
from petctl.bundle.sources import tree_of
from petctl.errors import NotFound, PetctlError, Unreachable, UsageError
from tests.integration.bundle.conftest import Web


def test_an_archive(web: Web, tmp_path: Path) -> None:
    """Its id is that of what was packed; a signature in the address is not kept."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("x")
    snapshot = take(code)
    snapshot.pack(tmp_path / "packed")
    web.answers["/a/code.tar.gz"] = (200, {}, (tmp_path / "packed").read_bytes())
    with tree_of(f"{web.address}/a/code.tar.gz?sig=private") as tree:
        assert take(tree.path).id == snapshot.id and tree.origin == f"{web.address}/a/code.tar.gz"
        folder = tree.path
    assert not folder.exists()


def test_a_script(web: Web) -> None:
    """Under its own name, also behind a redirect; it can be run if it says how."""
    web.answers["/run%20it.sh"] = (302, {"Location": "/real"}, b"")
    web.answers["/real"] = (200, {}, b"#!/bin/sh\n")
    with tree_of(f"{web.address}/run%20it.sh") as tree:
        [entry] = take(tree.path).entries
        assert (entry.path, entry.mode) == ("run it.sh", "755")


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((404, {}, b""), NotFound, "nothing found at"),
        ((403, {}, b""), UsageError, "requires a login"),
        ((503, {}, b""), Unreachable, "error 503"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), UsageError, "is a web page"),
        ((200, {}, b"x" * 3000), UsageError, "is larger than"),
        ((200, {"Content-Length": "100"}, b"x" * 50), Unreachable, "was interrupted after"),
        ((200, {}, b"no archive"), UsageError, "is not a .tar.gz archive"),
    ],
)
def test_wrong_answers(
    web: Web, tmp_path: Path, answer: tuple[int, dict[str, str], bytes], error: type[PetctlError], words: str
) -> None:
    """Each its own sentence, without the signature, and nothing is left behind."""
    web.answers["/code.tar.gz"] = answer
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        pytest.raises(error, match=words) as caught,
        tree_of(f"{web.address}/code.tar.gz?sig=private", limit=2000, scratch=scratch),
    ):
        pass
    assert "private" not in str(caught.value) and list(scratch.iterdir()) == []


def test_nobody_there() -> None:
    """The address is named."""
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/x\.py does not answer"), tree_of("http://127.0.0.1:9/x.py"):
        pass
