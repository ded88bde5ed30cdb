"""Blobs that are no files: blobfuse and others make an empty blob, named as the folder is, to stand for a folder. Pure.

Taken for a file it would be in the way of the folder itself, wherever that is copied to.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

FOLDER_MARK = "hdi_isfolder"
"""What is noted of such a blob, as metadata."""


def stands_for_folder(blob: Element) -> bool:
    """Whether a blob of a listing is one; the listing must have been asked for metadata."""
    return any(one.tag.lower() == FOLDER_MARK and one.text == "true" for one in blob.iterfind("Metadata/*"))
