"""A stream of unknown length into S3: one request if it is short, in parts if it is long."""

import contextlib
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError


class MultipartUpload:
    """Collects bytes and sends them part by part; at most one part is held in memory.

    Nothing is visible under the key before `finish`, and nothing is left after `abort`.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - its methods are made at run time
        bucket: str,
        key: str,
        media_type: str,
        part_bytes: int,
    ) -> None:
        self._client = client
        self._place = {"Bucket": bucket, "Key": key}
        self._media_type = media_type
        self._part_bytes = part_bytes
        self._buffer = bytearray()
        self._upload_id = ""
        self._parts: list[dict[str, object]] = []

    async def add(self, chunk: bytes) -> None:
        """Take bytes, sending every part that is full."""
        self._buffer += chunk
        while len(self._buffer) >= self._part_bytes:
            part = bytes(self._buffer[: self._part_bytes])
            del self._buffer[: self._part_bytes]
            await self._send(part)

    async def finish(self) -> None:
        """Send what is left and make the object visible."""
        if not self._upload_id:
            await self._client.put_object(
                **self._place, Body=bytes(self._buffer), ContentType=self._media_type
            )
            return
        if self._buffer:
            await self._send(bytes(self._buffer))
        await self._client.complete_multipart_upload(
            **self._place, UploadId=self._upload_id, MultipartUpload={"Parts": self._parts}
        )
        self._upload_id = ""

    async def abort(self) -> None:
        """Let the store forget the parts; where it cannot be told, its own clean-up does."""
        upload_id, self._upload_id = self._upload_id, ""
        if upload_id:
            with contextlib.suppress(BotoCoreError, ClientError, OSError):
                await self._client.abort_multipart_upload(**self._place, UploadId=upload_id)

    async def _send(self, part: bytes) -> None:
        if not self._upload_id:
            begun = await self._client.create_multipart_upload(
                **self._place, ContentType=self._media_type
            )
            self._upload_id = begun["UploadId"]
        number = len(self._parts) + 1
        sent = await self._client.upload_part(
            **self._place, UploadId=self._upload_id, PartNumber=number, Body=part
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})
