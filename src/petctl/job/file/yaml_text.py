"""YAML to a `Document`: syntax only, no guessing of types, no tags, no code.

Imports PyYAML inside the function: nothing else of petctl pays for it.
"""

from __future__ import annotations

from typing import Any

from petctl.job.spec.document import Builder, Document, Mark, Value, unquoted
from petctl.job.spec.problems import plain, shown

_NOTHING = ("", "~", "null", "Null", "NULL")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")


def parse_yaml(text: str, builder: Builder) -> Document:
    """A document from YAML text; raises SpecError with the place of the first error in the syntax."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # many times faster, where libyaml is there
    try:
        _feed(yaml.parse(text, Loader=loader), builder)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        tab = bool(mark and text.startswith("\t", mark.index))
        builder.fail(_mark(mark) if mark else Mark(1, 1), _explain(error.problem, tab))
    except yaml.reader.ReaderError:
        # Its own position counts bytes or characters, depending on the loader.
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        before = text[: found.start()] if found else ""
        place = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        builder.fail(place, "not YAML: contains a character that YAML does not allow; is this a text file?")
    return builder.document()


def _feed(events: Any, builder: Builder) -> None:
    from yaml import events as kinds

    anchors: dict[str, Value] = {}
    opened: list[str | None] = []  # the anchors of the open containers: known only once those are complete
    documents = 0
    for event in events:
        mark = _mark(event.start_mark)
        if isinstance(event, kinds.DocumentStartEvent):
            documents += 1
            if documents > 1:
                builder.fail(mark, "a second document starts here; a job file holds one job")
        elif isinstance(event, kinds.ScalarEvent):
            if event.tag not in _TEXT_TAGS:
                builder.fail(mark, f"the tag {shown(event.tag)} is not supported; leave it out")
            bare = event.implicit[0]
            value = None if bare and event.value in _NOTHING else unquoted(event.value) if bare else event.value
            builder.add(value, mark)
            if event.anchor:
                anchors[event.anchor] = value
        elif isinstance(event, (kinds.SequenceStartEvent, kinds.MappingStartEvent)):
            if event.tag is not None:
                builder.fail(mark, f"the tag {shown(event.tag)} is not supported; leave it out")
            builder.open([] if isinstance(event, kinds.SequenceStartEvent) else {}, mark)
            opened.append(event.anchor)
        elif isinstance(event, (kinds.SequenceEndEvent, kinds.MappingEndEvent)):
            container = builder.close()
            anchor = opened.pop()
            if anchor:
                anchors[anchor] = container
        elif isinstance(event, kinds.AliasEvent):
            if event.anchor not in anchors:
                builder.fail(mark, f"*{plain(str(event.anchor))} refers to nothing that is complete before this place")
            builder.add(anchors[event.anchor], mark)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _explain(problem: str | None, tab: bool) -> str:
    hint = ""
    if tab:
        hint = "; indent with spaces, not tabs"
    elif problem and "mapping values are not allowed" in problem:
        hint = "; put text that holds ': ' in quotes"
    return f"not YAML: {problem or 'cannot be read'}{hint}"
