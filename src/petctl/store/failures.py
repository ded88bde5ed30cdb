"""What stores say when they refuse, as sentences: which thing, what happened, what to do next.

One table of the stores' own error codes. Whoever talks to a store hands in what came back; nothing else of it is shown,
since it may hold signatures.
"""

from __future__ import annotations

import re

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused, StoreError, StoreUnreachable
from petctl.store.location import Location

_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")

_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ResourceNotFound", "ContainerBeingDeleted"}
_MISSING_OBJECT = {"NoSuchKey", "BlobNotFound", "NotFound"}
_WRONG_KEY = {
    "InvalidAccessKeyId": "the store does not know the access key id",
    "SignatureDoesNotMatch": "the secret key does not fit the access key id",
    "AuthenticationFailed": "the account key or SAS is wrong",
    "AuthorizationFailure": "the account key or SAS is wrong, or the account's network rules keep this machine out",
    "InvalidAuthenticationInfo": "the credentials are not in the form the store expects",
    "NoAuthenticationInformation": "there are no credentials, and the store wants some",
}
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "RequestExpired", "InvalidToken"}
_KEYS = {
    "s3": "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `petctl secret set aws-access-key-id`",
    "az": "see AZURE_STORAGE_ACCOUNT_KEY and AZURE_STORAGE_SAS_TOKEN, or `petctl secret set azure-ACCOUNT-key`",
    "gs": "see GOOGLE_APPLICATION_CREDENTIALS",
}


class NoSuchBucket(NoSuchPlace):
    """Not only the object: nothing else in it will be found either."""


def explain(error: BaseException, location: Location) -> PetctlError:
    """The error for people that an error of obstore stands for."""
    if isinstance(error, PetctlError):
        return error
    text = str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    if code or status:
        return refusal(int(status[1]) if status else 0, text, location)
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return NoSuchPlace(f"{location} does not exist")
    if kind == "PreconditionError":
        return Damaged(f"{location} was changed while it was read; run the same command again")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return refusal(403, text, location)
    if "redential" in text or "IMDS" in text or "metadata" in text.lower():
        return Refused(f"{location.root}: no credentials were found; {_KEYS.get(location.kind, '')}")
    return unreachable(location, _innermost(text))


def refusal(status: int, body: str, location: Location) -> PetctlError:
    """The error for people that a store's answer stands for."""
    found = _CODE.search(body)
    code = found[1] if found else ""
    keys = _KEYS.get(location.kind, "")
    if code in _MISSING_BUCKET:
        what = "container" if location.kind == "az" else "bucket"
        return NoSuchBucket(f"the {what} {location.root} does not exist; make it first, or correct the name")
    if code in _MISSING_OBJECT or (status == 404 and not code):
        return NoSuchPlace(f"{location} does not exist")
    if code in _EXPIRED or "expired" in body.lower() or "Signature not valid in the specified time frame" in body:
        return Refused(f"{location.root}: the token or SAS has expired; get a new one ({keys})")
    if code in _WRONG_KEY:
        return Refused(f"{location.root}: {_WRONG_KEY[code]}; {keys}")
    if code in ("BadDigest", "Md5Mismatch", "InvalidDigest", "XAmzContentSHA256Mismatch"):
        return Damaged(f"{location}: the store received other bytes than were sent; run the same command again")
    if code == "RequestTimeTooSkewed":
        return Refused(f"{location.root}: the clock of this machine is wrong by more than 15 minutes; set it")
    if status == 401:
        return Refused(f"{location.root}: the store does not accept the credentials; {keys}")
    if status == 403:
        return Refused(f"{location}: these credentials do not permit this; ask the owner for the right to do it")
    if status >= 500 or status == 429:
        return StoreUnreachable(f"{location.root}: the store answers {status} again and again; try again later")
    return StoreError(f"{location}: the store refused ({status} {code}); nothing of it was changed")


def unreachable(location: Location, reason: str, endpoint: str = "") -> StoreUnreachable:
    """Nobody answers."""
    at = f" at {endpoint}" if endpoint else ""
    return StoreUnreachable(f"{location.root}: no answer{at} ({reason}); is the endpoint right and the network up?")


def _innermost(text: str) -> str:
    """The end of a chain of causes, without URLs: those may be signed."""
    first = text.splitlines()[0] if text else "unknown error"
    last = first.rpartition(": ")[2]
    return re.sub(r"https?://\S+", "the store", last)[:200]
