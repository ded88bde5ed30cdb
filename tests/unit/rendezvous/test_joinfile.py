"""The join file, and the locator in it."""

import json
import stat

import pytest

from petctl.errors import Unreachable, UsageError
from petctl.rendezvous.net.join_file import JoinFile, read_join_file, write_join_file
from petctl.rendezvous.net.locator import is_loopback, join_address, resolve, split_address

JOIN = JoinFile("mnist-3f9k", "c0ffee", "ab" * 32, {"address": "10.0.0.1:7000"}, {"argv": ["petctl"], "lock": "l"})


def test_it_is_read_as_it_was_written(tmp_path):
    write_join_file(tmp_path / "join.json", JOIN)
    assert read_join_file(tmp_path / "join.json") == JOIN


def test_it_is_its_owners_alone_even_where_an_open_one_was(tmp_path):
    path = tmp_path / "join.json"
    path.write_text("{}")
    path.chmod(0o644)
    write_join_file(path, JOIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["join.json"]


def test_what_nodes_have_does_not_hold_the_jobs_own_token(tmp_path):
    nodes = JOIN.for_nodes()
    write_join_file(tmp_path / "join.json", nodes)
    assert read_join_file(tmp_path / "join.json") == nodes and nodes.for_nodes() == nodes
    assert "c0ffee" not in (tmp_path / "join.json").read_text()
    assert nodes.node_token == JOIN.node_token and nodes.for_control("c0ffee") == JOIN


def test_the_token_does_not_show_in_logs():
    assert "c0ffee" not in repr(JOIN)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("nonsense", "not JSON"),
        ("[]", "is not a JSON object"),
        ({}, "has no 'job'"),
        ({"job": "j"}, "has no 'token'"),
        ({"job": "j", "token": "t"}, "has no 'locator'"),
        ({"job": "j", "token": "t", "locator": {"address": 7}}, "has no 'locator'"),
        ({"job": "j", "token": "t", "locator": {"address": "h:1"}, "pin": "short"}, "'pin'"),
        ({"job": "j", "token": "t", "locator": {"address": "h:1"}, "revive": 7}, "'revive'"),
    ],
)
def test_what_is_wrong_with_it_is_said(tmp_path, content, words):
    path = tmp_path / "join.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match=words) as raised:
        read_join_file(path)
    assert str(path) in str(raised.value)
    assert "petctl token" in str(raised.value)


def test_a_locator_is_resolved_anew_each_time(tmp_path):
    place = tmp_path / "coordinator.json"
    locator = {"file": str(place)}
    with pytest.raises(Unreachable, match="no coordinator at"):
        resolve(locator, 1)
    place.write_text('{"address": "127.0.0.1:1"}')
    assert resolve(locator, 1) == ("127.0.0.1", 1)
    place.write_text('{"address": "127.0.0.1:2"}')
    assert resolve(locator, 1) == ("127.0.0.1", 2)
    assert resolve({"url": place.as_uri()}, 1) == ("127.0.0.1", 2)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"address": 7}', '{"address": "h"}', '{"address": "h:0"}'])
def test_a_file_that_names_no_place(tmp_path, text):
    (tmp_path / "c").write_text(text)
    with pytest.raises(Unreachable):
        resolve({"file": str(tmp_path / "c")}, 1)


def test_addresses_of_both_families():
    for address in ("127.0.0.1:80", "[::1]:80", "some.host:65535"):
        assert join_address(*split_address(address)) == address


def test_only_this_machine_is_loopback():
    assert is_loopback("127.0.0.1") and is_loopback("127.9.9.9") and is_loopback("::1")
    assert not is_loopback("10.0.0.1") and not is_loopback("0.0.0.0") and not is_loopback("::")
