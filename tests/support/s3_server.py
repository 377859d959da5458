"""A real S3 server on loopback, moto's, and buckets on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import boto3
from moto import server as moto_server

#: What clients read from their environment.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "us",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Server:
    """Moto's server. Requests that ``denied`` is true of are answered with an error."""

    def __init__(self, port: int = 0) -> None:
        self.denied: Callable[[str, str], bool] = lambda method, path: False
        self._server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        self._server.start()
        self.port: int = self._server.get_host_and_port()[1]
        self._app = self._server._server.app
        self._server._server.app = self._answer

    def _answer(self, request: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not self.denied(request["REQUEST_METHOD"], request["PATH_INFO"]):
            return self._app(request, start_response)
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

    def stop(self) -> None:
        self._server.stop()
        self._server._server.server_close()


@attrs.define
class Bucket:
    """A bucket of a server."""

    port: int
    name: str

    def uri(self, path: str) -> str:
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{self.name}/{path}?{options}"

    def client(self) -> Any:
        endpoint = f"http://127.0.0.1:{self.port}"
        return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")

    def create(self) -> Bucket:
        self.client().create_bucket(Bucket=self.name)
        return self

    def objects(self) -> set[str]:
        found = self.client().list_objects_v2(Bucket=self.name)
        return {item["Key"] for item in found.get("Contents", ())}

    def delete(self) -> None:
        client = self.client()
        for key in self.objects():
            client.delete_object(Bucket=self.name, Key=key)
        client.delete_bucket(Bucket=self.name)
