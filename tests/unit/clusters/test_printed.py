"""What is made for a cluster, as text."""

from __future__ import annotations

import json

import yaml

from petctl.submission.render import as_text


def test_what_is_said_twice_is_written_twice_and_in_order() -> None:
    labels = {"zone": "a", "app": "größe"}
    text = as_text([{"kind": "A", "labels": labels, "other": labels}, {"kind": "B"}], "yaml")
    assert "&" not in text and "größe" in text
    assert list(yaml.safe_load_all(text)) == [{"kind": "A", "labels": labels, "other": labels}, {"kind": "B"}]
    assert text.index("zone") < text.index("app")


def test_json_is_one_document() -> None:
    assert json.loads(as_text([{"kind": "A"}], "json")) == {"kind": "A"}
    many = json.loads(as_text([{"kind": "A"}, {"kind": "B"}], "json"))
    assert many == {"apiVersion": "v1", "kind": "List", "items": [{"kind": "A"}, {"kind": "B"}]}
