"""What opens a location: endpoint, keys and tokens, from the environment, the configuration and `petctl secret`.

    S3      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; secrets of the same names in lower case with
            dashes (aws-access-key-id ...); ~/.aws/credentials with AWS_PROFILE; else the machine's identity.
            Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL. Region: AWS_REGION, AWS_DEFAULT_REGION, ~/.aws/config.
    Azure   a SAS in the URL; AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_KEY),
            AZURE_STORAGE_CONNECTION_STRING, each only for the account that AZURE_STORAGE_ACCOUNT or the string names;
            secrets azure-ACCOUNT-sas, azure-ACCOUNT-key; else the machine's identity.
            Endpoint: AZURE_STORAGE_ENDPOINT.
    gs      GOOGLE_APPLICATION_CREDENTIALS, or the machine's identity.

Configuration wins over the environment for endpoint and region, longest location first:

    stores:
      s3://: {endpoint: "http://127.0.0.1:8333", region: us-east-1}
      https://ACCOUNT.file.core.windows.net/SHARE: {directory: /mnt/share}

No value of a key is ever part of a message or a repr.
"""

from __future__ import annotations

import base64
import configparser
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Mapping
from urllib.parse import parse_qs

from petctl.errors import Refused, UsageError
from petctl.storage.stores.location import BLOB_HOST, Location

DEFAULT_REGION = "us-east-1"
_DOTTED_BUCKET = re.compile(r"[^a-z0-9-]")
SETTINGS = ("endpoint", "region", "directory", "anonymous")


def _no_secret(name: str) -> str:
    return ""


@dataclass(frozen=True)
class Surroundings:
    """What the caller knows and the store cannot: environment, `stores:` settings, secrets, where to keep records."""

    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    stores: Mapping[str, Any] = field(default_factory=dict)
    secret: Callable[[str], str] = _no_secret
    records: Path | None = None


@dataclass(frozen=True)
class Access:
    """How one bucket or container is reached; `key` and `sas` empty: obstore finds an identity by itself."""

    kind: str
    endpoint: str = ""
    region: str = DEFAULT_REGION
    key_id: str = ""
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    anonymous: bool = False


def settings_for(location: Location, surroundings: Surroundings) -> Mapping[str, Any]:
    """What `stores:` says about a location: the longest name that it begins with."""
    text = str(location)
    best = ""
    for name, settings in surroundings.stores.items():
        if not isinstance(settings, dict):
            raise UsageError(f"stores: {name!r} in the configuration must be a mapping, not {type(settings).__name__}")
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise UsageError(f"stores: {name!r} has no setting {unknown[0]!r}; there are: {', '.join(SETTINGS)}")
        inside = text == name or text.startswith(name if name.endswith("/") else f"{name}/")
        if inside and len(name) > len(best):
            best = name
    found: Mapping[str, Any] = surroundings.stores.get(best, {})
    return found


def resolve(location: Location, surroundings: Surroundings) -> Location:
    """A file share becomes the directory that configuration gives it; everything else stays what it is."""
    if location.kind != "share":
        return location
    directory = settings_for(location, surroundings).get("directory")
    if not directory:
        raise UsageError(
            f"{location} is a file share without a directory on this machine; mount it and add to petctl.yaml:\n "
            f" stores:\n    {location.root}: {{directory: /PATH/WHERE/IT/IS}}"
        )
    path = Path(str(directory)).expanduser().absolute() / location.path
    return Location("file", path=str(path), slash=location.slash)


def find_access(location: Location, surroundings: Surroundings) -> Access:
    """Endpoint and credentials of the bucket or container that a location is in."""
    settings = settings_for(location, surroundings)
    endpoint = str(settings.get("endpoint") or "")
    anonymous = bool(settings.get("anonymous", False))
    if location.kind == "s3":
        return _s3(surroundings, endpoint, str(settings.get("region") or ""), anonymous)
    if location.kind == "az":
        return _azure(location, surroundings, endpoint, anonymous)
    return Access(location.kind, endpoint, anonymous=anonymous)


def base_url(location: Location, access: Access) -> str:
    """The URL of the bucket or container."""
    if access.kind == "s3" and not access.endpoint:
        if _DOTTED_BUCKET.search(location.bucket):  # TLS certificates cover one name below the region's
            return f"https://s3.{access.region}.amazonaws.com/{location.bucket}"
        return f"https://{location.bucket}.s3.{access.region}.amazonaws.com"
    return f"{access.endpoint}/{location.bucket}"


def _s3(surroundings: Surroundings, endpoint: str, region: str, anonymous: bool) -> Access:
    environ = surroundings.environ
    profile = environ.get("AWS_PROFILE", "default")
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        section = profile if profile == "default" else f"profile {profile}"
        region = _aws_file(environ, "AWS_CONFIG_FILE", "config", section).get("region", DEFAULT_REGION)
    found = {name.lower(): environ.get(name, "") for name in _AWS_NAMES}
    if not found["aws_access_key_id"]:
        found = {name.lower(): surroundings.secret(name.lower().replace("_", "-")) for name in _AWS_NAMES}
    if not found["aws_access_key_id"]:
        found = _aws_file(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials", profile)
    key_id, key = found.get("aws_access_key_id", ""), found.get("aws_secret_access_key", "")
    if key_id and not key:
        raise UsageError("the AWS access key id has no secret key; set AWS_SECRET_ACCESS_KEY as well")
    token = found.get("aws_session_token", "")
    return Access("s3", endpoint.rstrip("/"), region, key_id, key, token, anonymous=anonymous)


_AWS_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def _aws_file(environ: Mapping[str, str], variable: str, name: str, section: str) -> dict[str, str]:
    home = environ.get("HOME")
    path = environ.get(variable) or (f"{home}/.aws/{name}" if home else "")
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
        return dict(parser[section]) if parser.has_section(section) else {}
    except (configparser.Error, UnicodeDecodeError, OSError):
        raise UsageError(f"cannot read {path}: it is not in the AWS tools' format; repair or remove it") from None


def _azure(location: Location, surroundings: Surroundings, endpoint: str, anonymous: bool) -> Access:
    environ, account = surroundings.environ, location.account
    connection = _connection_string(environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    if connection.get("AccountName") != account:
        connection = {}
    named = environ.get("AZURE_STORAGE_ACCOUNT") or environ.get("AZURE_STORAGE_ACCOUNT_NAME") or account
    own = environ if named == account else {}
    endpoint = endpoint or own.get("AZURE_STORAGE_ENDPOINT") or connection.get("BlobEndpoint") or ""
    key = own.get("AZURE_STORAGE_ACCOUNT_KEY") or own.get("AZURE_STORAGE_KEY") or connection.get("AccountKey") or ""
    sas = location.sas or own.get("AZURE_STORAGE_SAS_TOKEN") or connection.get("SharedAccessSignature") or ""
    if not key and not sas and not anonymous:
        sas = surroundings.secret(f"azure-{account}-sas")
        key = "" if sas else surroundings.secret(f"azure-{account}-key")
    _check_not_expired(location, sas.lstrip("?"))
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise Refused(f"{location.root}: the account key is not valid base64; copy it again, in full") from None
    endpoint = (endpoint or f"https://{account}{BLOB_HOST}").rstrip("/")
    return Access("az", endpoint, key_id=account, key="" if sas else key, sas=sas.lstrip("?"), anonymous=anonymous)


def _check_not_expired(location: Location, sas: str) -> None:
    """Says so here: stores answer an expired SAS as they answer a wrong one."""
    end = parse_qs(sas).get("se", [""])[0]
    try:
        expiry = datetime.fromisoformat(end.replace("Z", "+00:00"))
    except ValueError:
        return  # no end, or a form that only the store knows
    if expiry.tzinfo is not None and expiry < datetime.now(timezone.utc):
        raise Refused(f"{location.root}: the SAS has expired, at {end}; get a new one, see AZURE_STORAGE_SAS_TOKEN")


def _connection_string(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {name: value for name, _, value in pairs}
