"""What object stores say when they refuse, as sentences: which thing, what happened, what to do next. Pure.

One table of the stores' own error codes, for nodes and for the submitting side. Nothing else of an answer is shown,
since it may hold signatures.
"""

from __future__ import annotations

import re

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused, StoreError, StoreUnreachable

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""The answers of a store that is busy or restarts: worth asking again."""

_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ResourceNotFound", "ContainerBeingDeleted"}
_MISSING_OBJECT = {"NoSuchKey", "BlobNotFound", "NotFound"}
_WRONG_KEY = {
    "InvalidAccessKeyId": "the store does not know the access key id",
    "SignatureDoesNotMatch": "the secret key does not match the access key id",
    "AuthenticationFailed": "the account key or SAS is wrong",
    "AuthorizationFailure": "the account key or SAS is wrong, or the account's network rules block this machine",
    "InvalidAuthenticationInfo": "the credentials are not in the form the store expects",
    "NoAuthenticationInformation": "the store needs credentials, but none were given",
}
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "RequestExpired", "InvalidToken"}
KEYS = {
    "s3": "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `petctl secret set aws-access-key-id`",
    "az": "see AZURE_STORAGE_ACCOUNT_KEY and AZURE_STORAGE_SAS_TOKEN, or `petctl secret set azure-ACCOUNT-key`",
    "gs": "see GOOGLE_APPLICATION_CREDENTIALS",
}
"""Where keys are looked for, by kind of store."""


class NoSuchBucket(NoSuchPlace):
    """Not only the object: nothing else in it will be found either."""


def refusal(status: int, body: str, kind: str, root: str, where: str) -> PetctlError:
    """The error for people that a store's answer stands for. `root`: the bucket; `where`: the object in it."""
    found = _CODE.search(body)
    code = found.group(1) if found else ""
    keys = KEYS.get(kind, "")
    if code in _MISSING_BUCKET:
        what = "container" if kind == "az" else "bucket"
        return NoSuchBucket(f"the {what} {root} does not exist; create it first, or correct the name")
    if code in _MISSING_OBJECT or (status == 404 and not code):
        return NoSuchPlace(f"{where} does not exist")
    if code in _EXPIRED or "expired" in body.lower() or "Signature not valid in the specified time frame" in body:
        return Refused(f"{root}: the token or SAS has expired; get a new one ({keys})")
    if code in _WRONG_KEY:
        return Refused(f"{root}: {_WRONG_KEY[code]}; {keys}")
    if code in ("BadDigest", "Md5Mismatch", "InvalidDigest", "XAmzContentSHA256Mismatch"):
        return Damaged(f"{where}: the store received different bytes than were sent; run the same command again")
    if code == "RequestTimeTooSkewed":
        return Refused(f"{root}: the clock of this machine is wrong by more than 15 minutes; set it")
    if status == 401:
        return Refused(f"{root}: the store does not accept the credentials; {keys}")
    if status == 403 or code == "AccessDenied":
        return Refused(f"{where}: these credentials do not permit this; ask the owner for permission")
    if status == 412:
        return Damaged(f"{where} changed while it was read; run the same command again")
    if status >= 500 or status == 429:
        return StoreUnreachable(f"{root}: the store keeps answering {status}; try again later")
    return StoreError(f"{where}: the store refused ({status} {code}); nothing was changed")


def unreachable(root: str, reason: str, endpoint: str = "") -> StoreUnreachable:
    """Nobody answers."""
    at = f" at {endpoint}" if endpoint else ""
    return StoreUnreachable(f"{root}: no answer{at} ({reason}); check the endpoint and the network")


def reason(error: BaseException) -> str:
    """Why a connection failed, in a few words."""
    if isinstance(error, (BlockingIOError, TimeoutError)):  # by the kernel's clock, or Python's
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
