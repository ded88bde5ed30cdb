"""Arguments of control calls are of the kind that the call names, or the call does not begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.errors import UsageError
from petctl.rendezvous.net.calls import FLAG, LIST, NAMES, NUMBER, TEXT, WHOLE, Call, calls_of

CALL = Call(lambda **words: words, {"wanted": WHOLE}, {"kill": FLAG})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=3), parts, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "it needs 'wanted', a whole number"),
        ({"wanted": True}, "'wanted' must be a whole number, not true"),
        ({"wanted": 2.0}, "'wanted' must be a whole number, not 2.0"),
        ({"wanted": "2"}, "'wanted' must be a whole number, not \"2\""),
        ({"wanted": None}, "'wanted' must be a whole number, not null"),
        ({"wanted": [9] * 100}, r"not \[9, 9, 9, .*\.\.\.$"),
        ({"wanted": 1, "kill": 1}, "'kill' must be true or false, not 1"),
        ({"wanted": 1, "self": 1}, "it takes no 'self'"),
    ],
)
def test_what_does_not_fit_is_named(words, told):
    with pytest.raises(UsageError, match=f"the call 'scale' does not match the coordinator's: .*{told}"):
        CALL.checked("scale", words)


@pytest.mark.parametrize("words", [{"wanted": 1}, {"wanted": 0, "kill": True}])
def test_what_fits_is_handed_on(words):
    assert CALL.checked("scale", words) == words


@given(JSON)
def test_each_kind_takes_its_own_and_nothing_else(value):
    right = {
        WHOLE: type(value) is int,
        NUMBER: type(value) in (int, float),
        FLAG: type(value) is bool,
        TEXT: type(value) is str,
        LIST: type(value) is list,
    }
    assert {kind: kind.fits(value) for kind in right} == right


@pytest.mark.parametrize("value", [["0", "node-1"], []])
def test_names(value):
    assert NAMES.fits(value)


@pytest.mark.parametrize("value", ["0", None, ["a b"], ["ü"], [""], [7], [["0"]], {"0": 1}])
def test_what_is_no_list_of_names(value):
    assert not NAMES.fits(value)


def test_a_function_alone_takes_no_arguments():
    call = calls_of({"status": dict})["status"]
    assert call.checked("status", {}) == {}
    with pytest.raises(UsageError, match="takes no 'a'"):
        call.checked("status", {"a": 1})
