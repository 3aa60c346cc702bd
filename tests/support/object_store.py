"""An S3-compatible object store on loopback that checks who asks, and hands out credentials for one folder alone.

It is moto as a server in a process of its own, with its checks of signatures and policies turned on. A credential is
what somebody gets who assumes a role whose policy opens one folder; every folder has its own role.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import boto3
import urllib3
from botocore.config import Config
from urllib3.exceptions import HTTPError

from demo.processes import Process, ServiceError, wait_until
from demo.services import free_port

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

REGION: Final = "us-east-1"
_START: Final = 60.0
_ANYBODY: Final = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_MAY_ASSUME: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True, slots=True)
class Key:
    """Who somebody is to the store."""

    id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class ObjectStore:
    """``with ObjectStore(folder) as store``; ``store.bucket`` is there and empty."""

    bucket = "lake"

    def __init__(self, folder: Path) -> None:
        self._log = folder / "object-store.log"
        self._port = 0
        self._process: Process | None = None
        self._roles: dict[str, str] = {}
        self._admin = Key("nobody", "nobody")

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def root(self) -> str:
        """The location of its bucket."""
        return f"s3://{self.bucket}"

    def start(self) -> Self:
        """Start it, and close it to strangers."""
        self._port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._process = Process(command, log=self._log, environment={"PATH": os.defpath})
        wait_until(self._answers, seconds=_START, what="the object store answers")
        iam = self._client("iam")
        iam.create_user(UserName="admin")
        iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=json.dumps(_ANYBODY))
        made = iam.create_access_key(UserName="admin")["AccessKey"]
        self._admin = Key(made["AccessKeyId"], made["SecretAccessKey"])
        self._client("s3").create_bucket(Bucket=self.bucket)
        urllib3.request("POST", f"{self.endpoint}/moto-api/reset-auth", body=b"0", timeout=10)
        return self

    def stop(self) -> None:
        """End it; nothing of it stays."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def options(self, key: Key | None = None) -> dict[str, str]:
        """How pyiceberg reaches it: as ``key``, or as whoever may do everything."""
        shown = key or self._admin
        options = {
            "s3.endpoint": self.endpoint,
            "s3.region": REGION,
            "s3.path-style-access": "true",
            "s3.access-key-id": shown.id,
            "s3.secret-access-key": shown.secret,
        }
        return options if shown.token is None else {**options, "s3.session-token": shown.token}

    def credential(self, location: str) -> Key:
        """A fresh credential that reads and writes under ``location`` and opens nothing else."""
        if location not in self._roles:
            self._roles[location] = self._role(location.removeprefix("s3://").rstrip("/"))
        given = self._client("sts").assume_role(RoleArn=self._roles[location], RoleSessionName="reader")["Credentials"]
        return Key(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])

    def client(self) -> Any:
        """An S3 client that may do everything."""
        return self._client("s3")

    def objects(self, prefix: str = "") -> set[str]:
        """The names of everything in the bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {str(entry["Key"]) for page in pages for entry in page.get("Contents", [])}

    def _role(self, folder: str) -> str:
        iam, name = self._client("iam"), "folder-" + hashlib.sha256(folder.encode()).hexdigest()[:16]
        actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        inside = {"Effect": "Allow", "Action": actions, "Resource": f"arn:aws:s3:::{folder}/*"}
        # Names may be seen everywhere: moto knows no condition on the prefix of a listing, and a writer looks first.
        names = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{self.bucket}"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [inside, names]})
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_MAY_ASSUME))["Role"]
        iam.put_role_policy(RoleName=name, PolicyName="its-folder", PolicyDocument=policy)
        return str(role["Arn"])

    def _client(self, service: str) -> Any:
        # Nothing of this machine's own settings, and no long patience with a server next door.
        patience = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20)
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self._admin.id,
            aws_secret_access_key=self._admin.secret,
            config=patience,
        )

    def _answers(self) -> bool:
        if self._process is not None and not self._process.alive():
            raise ServiceError(f"the object store ended:\n{self._process.tail()}")
        with suppress(HTTPError):
            return urllib3.request("GET", f"{self.endpoint}/moto-api/", retries=False, timeout=5).status < 500
        return False
