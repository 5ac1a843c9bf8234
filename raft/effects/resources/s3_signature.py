"""AWS Signature Version 4, for requests without a query: "Authenticating Requests (AWS Signature Version 4)"."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def signed(
    method: str,
    host: str,
    path: str,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    region: str,
    credentials: Credentials,
    now_ns: int,
) -> dict[str, str]:
    """``headers`` with the ones that authenticate them. ``path`` is percent-encoded already, once."""
    time = datetime.fromtimestamp(now_ns / 1e9, UTC)
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ"), time.strftime("%Y%m%d")
    digest = hashlib.sha256(payload).hexdigest()
    all_headers = {**headers, "Host": host, "X-Amz-Date": stamp, "X-Amz-Content-SHA256": digest}
    if credentials.session_token:
        all_headers["X-Amz-Security-Token"] = credentials.session_token
    ordered = sorted((name.lower(), " ".join(value.split())) for name, value in all_headers.items())
    names = ";".join(name for name, _ in ordered)
    lines = [method, path, "", *(f"{name}:{value}" for name, value in ordered), "", names, digest]
    request = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    scope = f"{day}/{region}/s3/aws4_request"
    key = f"AWS4{credentials.secret_key}".encode()
    for word in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{request}".encode(), "sha256").hex()
    all_headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return all_headers
