"""One file from an http or https address, bounded in size. The web only: object stores have their own way in.

An answer that cannot be the file that was meant (an error, a web page where code was asked for, less than was
announced) is an error with its own sentence.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from petctl.errors import NotFound, PetctlError, Unreachable, UsageError
from petctl.http_proxy import url_opener

_SILENCE = 30.0  # seconds without a byte
_PIECE = 1 << 20


def download(url: str, target: Path, limit: int) -> None:
    """Writes what is at `url` to the file `target`."""
    shown = url.partition("?")[0]  # what follows may be a signature
    request = urllib.request.Request(url, headers={"User-Agent": "petctl", "Accept-Encoding": "identity"})
    try:
        with url_opener().open(request, timeout=_SILENCE) as answer, open(target, "wb") as file:
            _check(shown, answer)
            left = limit
            while data := answer.read(_PIECE):
                left -= len(data)
                if left < 0:
                    raise UsageError(f"{shown} is larger than {limit >> 20} MiB; too large for code: map it as data")
                file.write(data)
            announced = answer.headers["Content-Length"]
            if announced is not None and limit - left != int(announced):
                raise Unreachable(
                    f"downloading {shown} was interrupted after {limit - left} of {announced} bytes; try again"
                )
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(shown, error.code) from None
    except urllib.error.URLError as error:
        raise Unreachable(f"{shown} does not answer: {error.reason}; check the address and the network") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise Unreachable(f"downloading {shown} was interrupted: {error or type(error).__name__}; try again") from None


def _check(shown: str, answer: http.client.HTTPResponse) -> None:
    if urlsplit(shown).scheme == "https" and urlsplit(answer.geturl()).scheme != "https":
        raise UsageError(f"{shown} redirects to an address without TLS; use an https:// address")
    is_page = answer.headers.get_content_type() == "text/html"
    if is_page and not urlsplit(shown).path.endswith((".html", ".htm")):
        raise UsageError(f"{shown} is a web page, not a file; use the address of the file itself (raw, download)")


def _refused(shown: str, status: int) -> PetctlError:
    if status in (404, 410):
        return NotFound(f"nothing found at {shown} ({status}); check the address")
    if status in (401, 403):
        return UsageError(f"{shown} requires a login ({status}); use a signed URL")
    return Unreachable(f"{shown} returned error {status}; try again later")
