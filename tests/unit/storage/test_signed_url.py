"""Links to objects of Azure: good over HTTPS only, where the endpoint has it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from petctl.storage.core.parts import Records
from petctl.storage.stores.credentials import Access
from petctl.storage.stores.location import parse_location
from petctl.storage.stores.signed import SignedBucket


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [("https://acc.blob.core.windows.net", ["https"]), ("http://127.0.0.1:10000/acc", [])],
)
def test_a_link_is_bound_to_https_where_the_endpoint_has_it(endpoint: str, protocol: list[str]) -> None:
    access = Access("az", endpoint, key_id="acc", key="a2V5")
    url = SignedBucket(parse_location("az://acc/box"), access, Records(None, "root")).url("a b/c.txt", 60)
    assert url.startswith(f"{endpoint}/box/a%20b/c.txt?")
    found = parse_qs(urlsplit(url).query)
    assert found.get("spr", []) == protocol and found["sp"] == ["r"] and found["sr"] == ["b"]
