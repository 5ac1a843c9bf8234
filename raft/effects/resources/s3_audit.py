"""Reads the ledger of an S3 resource, for :func:`.audit.check_ledger`."""

from __future__ import annotations

from ...core.errors import CheckFailed, FencepostError
from .http_client import HttpClient
from .ledger import Ledger
from .s3 import read_object
from .s3_object import S3Object, S3Place
from .s3_signature import Credentials


async def read_ledger(place: S3Place, credentials: Credentials, resource: str) -> Ledger:
    """Everything that the object holds about ``resource``; nothing is written. Raises :class:`CheckFailed`."""
    bound_ns = 60_000_000_000
    client = HttpClient(
        resource, "s3", place.url, connect_ns=bound_ns, answer_ns=bound_ns, connections=1, body_bytes_max=64 << 20
    )
    try:
        client.open()
        data = (await S3Object(resource, place, credentials, client).read()).data
        return read_object(resource, 0, data)[1].read()
    except FencepostError as error:
        raise CheckFailed(
            f"the object cannot be read as a ledger: {error}", next_step="check the address and the rights"
        ) from error
    finally:
        await client.close()
