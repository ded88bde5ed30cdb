"""Lines of code in what workers wrote, by the user's own paths."""

from __future__ import annotations

import pytest

from petctl.clusters.printed import own_paths

CODE = {"id": "0123456789abcdef" * 4, "own": "/home/me/my project"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('  File "/j/code/a/b.py", line 3, in f', '  File "/home/me/my project/a/b.py", line 3, in f'),
        ('[rank0]:   File "/j/code/b.py", line 3', '[rank0]:   File "/home/me/my project/b.py", line 3'),
        ("x\n/j/code/b.py:7: UserWarning: /j/code/c", "x\n/home/me/my project/b.py:7: UserWarning: /j/code/c"),
        ('  File "/far/code/0123456789abcdef/b.py", line 3', '  File "/home/me/my project/b.py", line 3'),
        ('saved to "/j/code/model.pt", well', 'saved to "/j/code/model.pt", well'),
        ("/j/code/model.pt", "/j/code/model.pt"),
        ('  File "/other/code/b.py", line 3', '  File "/other/code/b.py", line 3'),
    ],
)
def test_only_lines_of_code_are_renamed(text: str, wanted: str) -> None:
    assert own_paths(CODE, "/j/code")(text.encode()).decode() == wanted


def test_fetched_code_is_named_from_its_top() -> None:
    shown = own_paths({**CODE, "own": ""}, "/j/code")
    assert shown(b'File "/j/code/a/b.py", line 3') == b'File "a/b.py", line 3'
    assert own_paths({}, "/j/code")(b'File "/j/code/a.py", line 3') == b'File "/j/code/a.py", line 3'
