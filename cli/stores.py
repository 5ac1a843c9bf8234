"""Resources that are folders, objects and APIs: read from a configuration file, checked, and made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..raft.core.errors import ConfigurationError
from ..raft.effects.resources import file_effect, s3_effect
from ..raft.effects.resources.file import FileEffect, FileResource
from ..raft.effects.resources.http import HttpEffect, HttpResource
from ..raft.effects.resources.http_effect import RequestTemplate
from ..raft.effects.resources.s3 import Credentials, S3Effect, S3Place, S3Resource
from ..raft.ports import Resource
from .config_stores import (
    FileEffectConfiguration,
    FileResourceConfiguration,
    HttpEffectConfiguration,
    HttpResourceConfiguration,
    S3EffectConfiguration,
    S3ResourceConfiguration,
    StoreConfiguration,
)
from .settings import Document, did_you_mean

E = TypeVar("E")

_HTTP_SCHEMES = ("https", "http")


# -- reading ----------------------------------------------------------------------------------------


def read_file(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> FileResourceConfiguration | None:
    effects = _effects(document, FileEffectConfiguration, table, path, 'steps = [["append", "log", "{payload}"]]')
    found = document.section(
        FileResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects
    )
    _check_kept(document, found, path)
    return found


def read_s3(document: Document, name: str, table: Mapping[str, Any], path: list[str]) -> S3ResourceConfiguration | None:
    effects = _effects(document, S3EffectConfiguration, table, path, 'steps = [["set", "…", "{payload}"]]')
    found = document.section(S3ResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects)
    _check_kept(document, found, path)
    _check_url(document, table, path, "endpoint", rooted=True)
    return found


def read_http(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> HttpResourceConfiguration | None:
    effects = _effects(document, HttpEffectConfiguration, table, path, 'path = "/…"')
    _check_url(document, table, path, "url", rooted=False)
    return document.section(
        HttpResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects
    )


def _effects(
    document: Document, section: type[E], table: Mapping[str, Any], path: list[str], example: str
) -> dict[str, E]:
    effects: dict[str, E] = {}
    tables = document.table(table, [*path, "effects"])
    for effect in tables:
        at = [*path, "effects", effect]
        read = document.section(section, document.table(tables, at), at, name=effect)
        if read is not None:
            effects[effect] = read
    if not tables:
        document.problem([*path, "effects"], f"no effect; add [{'.'.join(path)}.effects.NAME] with {example}")
    return effects


def _check_kept(
    document: Document, found: FileResourceConfiguration | S3ResourceConfiguration | None, path: list[str]
) -> None:
    if found is not None and found.kept < found.batch_limit:
        document.problem(
            [*path, "kept"],
            f"{found.kept} is less than batch_limit, {found.batch_limit}: what one batch did would not all be "
            "recognised after a crash",
        )


def _check_url(document: Document, table: Mapping[str, Any], path: list[str], key: str, *, rooted: bool) -> None:
    url = table.get(key)
    if not isinstance(url, str):
        return
    try:
        parts = urlsplit(url)
        host, secret = parts.hostname, "@" in parts.netloc
    except ValueError:
        document.problem([*path, key], "not an address")
        return
    if parts.scheme not in _HTTP_SCHEMES or not host:
        document.problem([*path, key], "must begin with https://" + did_you_mean(parts.scheme, _HTTP_SCHEMES))
    elif secret:
        document.problem([*path, key], "holds a user or a password; put that into an environment variable")
    elif parts.query or parts.fragment or (rooted and parts.path.strip("/")):
        document.problem([*path, key], "must end with its " + ("host or port" if rooted else "path"))


# -- checking ---------------------------------------------------------------------------------------


def check_store(
    name: str,
    resource: StoreConfiguration,
    environment: Mapping[str, str],
    problems: list[str],
    warnings: list[str],
) -> None:
    """What can be said of it without asking anybody."""
    for effect in resource.effects.values():
        where = f"resources.{name}.effects.{effect.name}"
        try:
            if isinstance(effect, HttpEffectConfiguration):
                RequestTemplate(name, effect.name, _http_effect(effect))
            else:
                step = file_effect.Step if isinstance(effect, FileEffectConfiguration) else s3_effect.Step
                where += ".steps"
                for words in effect.steps:
                    step(name, effect.name, words)
        except ConfigurationError as error:
            problems.append(f"{where}: {error.message}")
    if isinstance(resource, FileResourceConfiguration):
        if not resource.path.parent.is_dir():
            warnings.append(f"resources.{name}.path: the folder {resource.path.parent} does not exist yet")
        return
    if find_spec("httpx") is None:
        warnings.append(f"resources.{name}: httpx is not installed:  pip install 'fencepost[{resource.kind}]'")
    if isinstance(resource, HttpResourceConfiguration):
        host = urlsplit(resource.url).hostname or ""
        local = host == "localhost" or host.startswith("127.") or host == "::1"
        if resource.authorization_env and resource.url.startswith("http:") and not local:
            warnings.append(f"resources.{name}.url: the authorization is sent without TLS")
    try:
        # The node may run in another environment than this check.
        make_store(name, resource, "check", environment)
    except ConfigurationError as error:
        if "environment variable" in error.message:
            warnings.append(f"resources.{name}: {error.message}")


# -- making -----------------------------------------------------------------------------------------


def make_store(name: str, settings: StoreConfiguration, cluster_id: str, environment: Mapping[str, str]) -> Resource:
    """Connects to nothing. Raises :class:`ConfigurationError` where ``environment`` lacks a secret."""
    if isinstance(settings, FileResourceConfiguration):
        return FileResource(
            name,
            settings.path,
            {effect: FileEffect(each.steps) for effect, each in settings.effects.items()},
            cluster_id=cluster_id,
            batch_limit=settings.batch_limit,
            kept=settings.kept,
        )
    if isinstance(settings, S3ResourceConfiguration):
        return S3Resource(
            name,
            S3Place(settings.bucket, settings.key or f"fencepost/{name}.json", settings.region, settings.endpoint),
            Credentials(
                _secret(name, environment, settings.access_key_env),
                _secret(name, environment, settings.secret_key_env),
                environment.get(settings.session_token_env, ""),
            ),
            {effect: S3Effect(each.steps) for effect, each in settings.effects.items()},
            cluster_id=cluster_id,
            batch_limit=settings.batch_limit,
            kept=settings.kept,
            object_bytes_max=settings.object_bytes_max,
            connect_ns=settings.connect_timeout_ns,
            answer_ns=settings.answer_timeout_ns,
        )
    authorization = settings.authorization_env and _secret(name, environment, settings.authorization_env)
    return HttpResource(
        name,
        settings.url,
        {effect: _http_effect(each) for effect, each in settings.effects.items()},
        cluster_id=cluster_id,
        authorization=authorization,
        authorization_header=settings.authorization_header,
        key_header=settings.key_header,
        key_quotes=settings.key_quotes,
        horizon_ns=settings.horizon_ns,
        stored_errors=settings.stored_errors,
        proxied=settings.proxied,
        concurrency=settings.concurrency,
        connect_ns=settings.connect_timeout_ns,
        answer_ns=settings.answer_timeout_ns,
        answer_bytes_max=settings.answer_bytes_max,
    )


def _http_effect(each: HttpEffectConfiguration) -> HttpEffect:
    return HttpEffect(each.path, each.method, each.body, each.content_type, each.query)


def _secret(name: str, environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "")
    if not value:
        raise ConfigurationError(
            f"resource {name!r}: the environment variable {variable} is not set",
            next_step=f"set {variable} where the node runs; it is never logged",
        )
    return value
