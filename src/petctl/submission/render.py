"""What is made for a cluster, as text: YAML for people, or JSON; kubectl reads both. It looks into none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def as_text(documents: Sequence[Mapping[str, Any]], output: str) -> str:
    """All of them as YAML; or as one JSON document: one alone as it is, several as a List of Kubernetes'."""
    if output == "json":
        import json

        whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
        return json.dumps(whole, indent=2) + "\n"
    import yaml

    class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # many times faster with libyaml
        """Writes what is said twice twice: names for it would be strange to read."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    text: str = yaml.dump_all(documents, Dumper=Plain, sort_keys=False, allow_unicode=True, width=120)
    return text
