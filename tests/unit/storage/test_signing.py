"""petctl's signatures are those of the official SDKs, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.storage.blob import BlobServiceClient, generate_blob_sas, generate_container_sas
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from petctl.storage.core import signing
from petctl.storage.core.signing import AwsKey, blob_sas, shared_key, sigv4_headers, sigv4_url

NOW = datetime(2026, 11, 15, 12, 30, 45, tzinfo=timezone.utc)
URLS = [
    "https://bucket.s3.eu-west-1.amazonaws.com/a/b.txt",
    "http://127.0.0.1:8333/bucket/a%20b/%C3%BC%23%3F%25.bin?partNumber=3&uploadId=x%2By%3D",
    "http://127.0.0.1:8333/bucket/x?uploads=",
    "https://s3.us-east-1.amazonaws.com/bucket/?list-type=2&prefix=a%2Fb&delimiter=%2F",
]


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: NOW.replace(tzinfo=None))


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("token", ["", "a/session+token=="])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_signature_4_is_botocores(url: str, token: str, method: str) -> None:
    headers = {"content-md5": "1B2M2Y8AsgTpgAmy7PhCfg==", "x-amz-meta-petctlpart": "8388608"}
    ours = sigv4_headers(method, url, headers, AwsKey("id", "secret", token), "eu-west-1", NOW)
    request = AWSRequest(method, url, headers={**headers, "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    request.context["payload_signing_enabled"] = False
    auth = S3SigV4Auth(Credentials("id", "secret", token or None), "s3", "eu-west-1")
    auth.payload = lambda request: "UNSIGNED-PAYLOAD"
    auth.add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("token", ["", "a/session+token=="])
def test_signed_urls_are_botocores(url: str, token: str) -> None:
    ours = sigv4_url("GET", url, AwsKey("id", "secret", token), "us-east-1", NOW, 600)
    request = AWSRequest("GET", url)
    S3SigV4QueryAuth(Credentials("id", "secret", token or None), "s3", "us-east-1", expires=600).add_auth(request)
    theirs = parse_qs(urlsplit(request.url).query)
    assert parse_qs(urlsplit(ours).query)["X-Amz-Signature"] == theirs["X-Amz-Signature"]


def azure_header(method: str, url: str, headers: dict[str, str]) -> str:
    """What the SDK's own policy would put on the request."""
    from azure.core.pipeline import PipelineContext, PipelineRequest
    from azure.core.pipeline.transport import HttpRequest

    client = BlobServiceClient("https://acc.blob.core.windows.net", credential=CREDENTIAL)
    request = HttpRequest(method, url, headers=headers)
    client.credential.on_request(PipelineRequest(request, PipelineContext(None)))
    return str(request.headers["Authorization"])


KEY = "c2VjcmV0IGtleSBvZiBhbiBhY2NvdW50"
CREDENTIAL = {"account_name": "acc", "account_key": KEY}


@pytest.mark.parametrize(
    ("method", "url", "length"),
    [
        ("PUT", "https://acc.blob.core.windows.net/box/a%20b?comp=block&blockid=cGV0Y3RsLQ%3D%3D", "10"),
        ("GET", "https://acc.blob.core.windows.net/box?restype=container&comp=list&prefix=a%2Fb&delimiter=%2F", "0"),
        ("PUT", "http://127.0.0.1:10000/acc/box/%C3%BC", "5"),
    ],
)
def test_shared_key_is_the_azure_sdks(method: str, url: str, length: str) -> None:
    headers = {
        "content-length": length,
        "content-md5": "1B2M2Y8AsgTpgAmy7PhCfg==",
        "content-type": "application/octet-stream",
        "x-ms-date": "Sun, 15 Nov 2026 12:30:45 GMT",
        "x-ms-version": "2021-12-02",
        "x-ms-meta-petctlmd5": "abc",
    }
    theirs = azure_header(method, url, headers)
    assert shared_key(method, url, headers, "acc", KEY) == theirs


def test_sas_is_the_azure_sdks() -> None:
    expiry = NOW + timedelta(hours=1)
    for https in (True, False):
        words: dict[str, Any] = {
            "account_key": KEY,
            "start": NOW,
            "expiry": expiry,
            **({"protocol": "https"} if https else {}),
        }
        theirs = generate_blob_sas("acc", "box", "a b/ü", permission="rw", **words)
        version = parse_qs(theirs)["sv"][0]
        assert parse_qs(blob_sas("acc", KEY, "box", "a b/ü", "rw", NOW, expiry, version, https)) == parse_qs(theirs)
        theirs = generate_container_sas("acc", "box", permission="racwdl", **words)
        assert parse_qs(blob_sas("acc", KEY, "box", "", "racwdl", NOW, expiry, version, https)) == parse_qs(theirs)


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_any_name_is_signed_as_botocore_signs_it(name: str) -> None:
    from urllib.parse import quote

    url = f"http://127.0.0.1:1/bucket/{quote(name, safe='')}?x={quote(name, safe='')}"
    ours = sigv4_headers("GET", url, {}, AwsKey("id", "secret"), "us-east-1", NOW)
    request = AWSRequest("GET", url, headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    auth = S3SigV4Auth(Credentials("id", "secret"), "s3", "us-east-1")
    auth.payload = lambda request: "UNSIGNED-PAYLOAD"
    auth.add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


def test_a_key_does_not_show_its_secret() -> None:
    assert "hidden" not in repr(AwsKey("id", "hidden", "hidden"))


def test_it_stands_alone_on_an_old_python() -> None:
    """Nothing of petctl and no package is imported; workers run this file with Python 3.9."""
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(Path(signing.__file__))],
        capture_output=True,
        text=True,
        check=True,
    )
    foreign = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert not {name for name in foreign if not name.startswith("_")} - {"sitecustomize", "usercustomize"}
