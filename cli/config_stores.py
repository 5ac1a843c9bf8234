"""The configuration of folders, objects and APIs: one frozen dataclass a kind, and one for its effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..raft.effects.resources.http_effect import METHODS
from ..raft.ports import Guarantee
from .config_resources import VARIABLE, ResourceSettings
from .settings import BOOL, DURATION, NAME, PATH, TEXT, Kind, choice, count, setting, show, size

_S = 1_000_000_000


def _parse_steps(value: Any, _folder: Path) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(words, list) and words for words in value):
        raise ValueError(f'{show(value)} is not a list of steps such as [["append", "{{account}}", "{{payload}}"]]')
    for words in value:
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"{show(word)} is not a text; write every word of a step in quotes")
    return tuple(tuple(words) for words in value)


STEPS = Kind("list of steps", _parse_steps, text=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEffectConfiguration:
    name: str
    steps: tuple[tuple[str, ...], ...] = setting(
        "steps",
        STEPS,
        'files to write or extend, done together: ["write", path, content] or ["append", path, line]; {names} are '
        "fields of the payload, and without a content it is the payload",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResourceConfiguration(ResourceSettings):
    """A folder of files; fence, dedupe and effects are committed by one rename: ``fenced``."""

    path: Path = setting("path", PATH, "the folder, made if need be; every node must reach the same one")  # noqa: RUF009 - a field specifier
    batch_limit: int = setting("batch_limit", count(1, 10_000), "commands in one commit, at most", default=256)
    kept: int = setting(
        "kept", count(1, 100_000), "operations that are recognised exactly; older ones are put in doubt", default=1024
    )
    effects: Mapping[str, FileEffectConfiguration] = field(default_factory=dict)

    kind = "file"
    guarantee = Guarantee.FENCED


@dataclass(frozen=True, slots=True, kw_only=True)
class S3EffectConfiguration:
    name: str
    steps: tuple[tuple[str, ...], ...] = setting(
        "steps",
        STEPS,
        'changes to the values in the object, done together: ["set", key, value], ["append", key, value], '
        '["add", key, number], ["at-least", key, number], ["delete", key]; {names} are fields of the payload',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class S3ResourceConfiguration(ResourceSettings):
    """An object in an S3 bucket; fence, dedupe and values are its body, replaced on a condition: ``fenced``."""

    bucket: str = setting("bucket", NAME, "the bucket; it must be there")
    key: str = setting("key", TEXT, 'the object\'s key; "fencepost/NAME.json" if empty', default="")
    region: str = setting("region", NAME, "the region that requests are signed for", default="us-east-1")
    endpoint: str = setting("endpoint", TEXT, "https://host:port of the store, where it is not Amazon's", default="")
    access_key_env: str = setting(
        "access_key_env", VARIABLE, "the environment variable that holds the access key", default="AWS_ACCESS_KEY_ID"
    )
    secret_key_env: str = setting(
        "secret_key_env", VARIABLE, "the same for the secret key", default="AWS_SECRET_ACCESS_KEY"
    )
    session_token_env: str = setting(
        "session_token_env", VARIABLE, "the same for a session token; it need not be set", default="AWS_SESSION_TOKEN"
    )
    batch_limit: int = setting("batch_limit", count(1, 10_000), "commands in one replacement, at most", default=256)
    kept: int = setting(
        "kept", count(1, 100_000), "operations that are recognised exactly; older ones are put in doubt", default=1024
    )
    object_bytes_max: int = setting(
        "object_max",
        size(64 << 10, 32 << 20),
        "how large the object may grow; it is read and written whole",
        default=8 << 20,
    )
    connect_timeout_ns: int = setting("connect_timeout", DURATION, "how long connecting may take", default=3 * _S)
    answer_timeout_ns: int = setting("answer_timeout", DURATION, "how long one answer may take", default=10 * _S)
    effects: Mapping[str, S3EffectConfiguration] = field(default_factory=dict)

    kind = "s3"
    guarantee = Guarantee.FENCED


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEffectConfiguration:
    name: str
    path: str = setting("path", TEXT, "added to the resource's url; {names} are fields of the payload")
    method: str = setting("method", choice(*METHODS), "the request's method", default="POST")
    body: str = setting("body", TEXT, "the same for the body; the payload if empty", default="")
    content_type: str = setting("content_type", TEXT, "what the body is", default="application/json")
    query: str = setting(
        "query", TEXT, "a path that says with GET whether {operation_id} was applied; 404 says it was not", default=""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResourceConfiguration(ResourceSettings):
    """An HTTP API that recognises an Idempotency-Key for a while: ``keyed``."""

    url: str = setting("url", TEXT, "https://host/path that every path is added to")
    authorization_env: str = setting(
        "authorization_env",
        VARIABLE,
        'the environment variable that holds the whole Authorization header, "Bearer …"',
        default="",
    )
    authorization_header: str = setting("authorization_header", NAME, "the header's name", default="Authorization")
    key_header: str = setting(
        "key_header", NAME, "the name of the header that holds the operation id", default="Idempotency-Key"
    )
    key_quotes: bool = setting(
        "key_quotes", BOOL, "whether the key is in quotes, as the draft of the header wants it", default=True
    )
    horizon_ns: int = setting(
        "horizon",
        DURATION,
        "so long after the first attempt a command is sent again; shorter than the API keeps its keys",
        default=23 * 3600 * _S,
    )
    stored_errors: int = setting(
        "stored_errors",
        count(1, 1000),
        "equal answers of 500 in a row that are taken for one that the API keeps under the key",
        default=3,
    )
    proxied: bool = setting(
        "proxied",
        BOOL,
        "whether url is that of a `fencepost proxy`: stale tokens are then refused, and where its API recognises keys "
        "the resource is fenced",
        default=False,
    )
    concurrency: int = setting("concurrency", count(1, 1000), "requests at once", default=16)
    connect_timeout_ns: int = setting("connect_timeout", DURATION, "how long connecting may take", default=3 * _S)
    answer_timeout_ns: int = setting("answer_timeout", DURATION, "how long one answer may take", default=30 * _S)
    answer_bytes_max: int = setting(
        "answer_max", size(1 << 10, 64 << 10), "how much of an answer is read; more is cut off", default=32 << 10
    )
    effects: Mapping[str, HttpEffectConfiguration] = field(default_factory=dict)

    kind = "http"
    guarantee = Guarantee.KEYED


StoreConfiguration = FileResourceConfiguration | S3ResourceConfiguration | HttpResourceConfiguration
