"""Words to write a schema with, as Kubernetes wants it in a CustomResourceDefinition. Pure."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANEW = "cannot be changed: delete the job and create it again"
FIXED = "Cannot be changed later."
KEPT: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""For what is taken as it comes."""


def mapping(description: str, fields: dict[str, Schema], required: list[str] | None = None) -> Schema:
    """An object with these fields. What is empty is left out, as the server does: it would never be as it was sent."""
    known = {"properties": fields} if fields else {}
    needed = {"required": required} if required else {}
    return {"description": description, "type": "object", **known, **needed}


def text(description: str) -> Schema:
    """Any text."""
    return {"description": description, "type": "string"}


def moment(description: str) -> Schema:
    """A point in time."""
    return {**text(description), "format": "date-time"}


def boolean(description: str) -> Schema:
    """Yes or no."""
    return {"description": description, "type": "boolean"}


def integer(description: str, least: int | None = None, most: int | None = None, form: str = "int32") -> Schema:
    """A whole number, at least and at most so much."""
    bounds = {name: bound for name, bound in (("minimum", least), ("maximum", most)) if bound is not None}
    return {"description": description, "type": "integer", "format": form, **bounds}


def choice(description: str, choices: list[str], default: str) -> Schema:
    """One of these words."""
    return {**text(description), "enum": choices, "default": default}


def rule(rule: str, message: str) -> Schema:
    """What must hold, and what somebody is told where it does not."""
    return {"rule": rule, "message": message}


def constant(name: str) -> Schema:
    """For a field that is always there."""
    return {"x-kubernetes-validations": [rule("self == oldSelf", f"{name} {ANEW}")]}


def same(name: str) -> str:
    """For a field that may be left out."""
    now, before = f"self.{name}", f"oldSelf.{name}"
    return f"(has({now}) == has({before}) && (!has({now}) || {now} == {before}))"
