"""Keys that may do one thing and not another, and temporary ones: against moto, which knows users and policies."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.storage.conftest import Scene, fill, tree
from tests.integration.storage.servers import Server, free_ports

BUCKET = "team"


class Moto(Server):
    """AWS as far as moto imitates it: identities with policies, S3, temporary keys."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        super().__init__([str(Path(sys.executable).with_name("moto_server")), "-p", str(port)], folder, port)

    def client(self, service: str, key: str = "root", secret: str = "root") -> Any:
        import boto3

        keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        return boto3.client(service, endpoint_url=self.url, region_name="us-east-1", **keys)

    def check_policies(self) -> None:
        """Until now every key could do everything."""
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset-auth", b"0", plain)).close()

    def environment(self, key: dict[str, str]) -> dict[str, str]:
        given = {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_REGION": "us-east-1",
        }
        return {**given, "AWS_SESSION_TOKEN": key["SessionToken"]} if "SessionToken" in key else given


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[Moto]:
    folder = tmp_path / "moto"
    folder.mkdir()
    server = Moto(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def allow(*actions: str) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_key_may_read_and_not_write(moto: Moto, tmp_path: Path) -> None:
    files = fill(tmp_path / "files", {"a": 10, "sub/b": 100_000})
    owner, iam = moto.client("s3"), moto.client("iam")
    owner.create_bucket(Bucket=BUCKET)
    iam.create_user(UserName="reader")
    iam.put_user_policy(
        UserName="reader", PolicyName="reads", PolicyDocument=allow("s3:GetObject", "s3:ListBucket", "s3:HeadObject")
    )
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    everything = moto.environment({"AccessKeyId": "root", "SecretAccessKey": "root"})
    scene = Scene(moto, f"s3://{BUCKET}", tmp_path, everything)
    scene.petctl("up", files, f"s3://{BUCKET}/set")

    moto.check_policies()
    reader = Scene(moto, f"s3://{BUCKET}", tmp_path, moto.environment(key))
    reader.petctl("down", f"s3://{BUCKET}/set", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(files)
    refused = reader.petctl("up", files, f"s3://{BUCKET}/other", code=5)
    assert "do not permit this" in refused.stderr
    reader.petctl("rm", "--yes", f"s3://{BUCKET}/set/", code=5)
    assert len(reader.json("ls", f"s3://{BUCKET}/set/")) == 2


def test_temporary_keys_open_a_bucket(moto: Moto, tmp_path: Path) -> None:
    files = fill(tmp_path / "files", {"a": 10, "large": 9 << 20})
    moto.client("s3").create_bucket(Bucket=BUCKET)
    key = moto.client("sts").get_session_token()["Credentials"]
    scene = Scene(moto, f"s3://{BUCKET}", tmp_path, moto.environment(key))
    scene.petctl("up", files, f"s3://{BUCKET}/set")
    scene.petctl("down", f"s3://{BUCKET}/set", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(files)
    assert "the bucket s3://nowhere does not exist" in scene.petctl("ls", "s3://nowhere/", code=4).stderr
