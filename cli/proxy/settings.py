"""The file of a fenced proxy: one table, `[proxy]`, read as a node's file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...raft.core.errors import ConfigurationError
from ...raft.effects.modes import FenceMode
from ..config_resources import VARIABLE
from ..settings import ADDRESS, BOOL, DURATION, NAME, PATH, TEXT, Document, choice, setting, size

_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """One proxy in front of one API. Durations are nanoseconds."""

    listen: str = setting("listen", ADDRESS, "host:port on which requests are taken")
    upstream: str = setting("upstream", TEXT, "https://host/path of the API; every path is added to it")
    # A field specifier, and no value that instances would share.
    fence: Path = setting("fence", PATH, "the SQLite file of fence and operations; belongs to the API")  # noqa: RUF009
    cluster: str = setting("cluster", NAME, "the id of the only cluster whose tokens are compared")
    resource: str = setting("resource", NAME, "a name for the API, for what is logged and answered", default="api")
    mode_name: str = setting(
        "mode",
        choice(FenceMode.OBSERVE.value, FenceMode.ENFORCE.value),
        "observe lets requests without a token, or with one that is too low, pass and counts them; never back from "
        "enforce",
        default=FenceMode.ENFORCE.value,
    )
    upstream_keyed: bool = setting(
        "upstream_keyed",
        BOOL,
        "whether the API recognises the Idempotency-Key: only then is a request sent again whose answer was missed",
        default=False,
    )
    horizon_ns: int = setting(
        "horizon",
        DURATION,
        "with upstream_keyed: so long after the first time it is sent again; shorter than the API keeps its keys",
        default=23 * 3600 * _S,
    )
    authorization_env: str = setting(
        "authorization_env",
        VARIABLE,
        "the environment variable with the Authorization header for the API, where callers are not to know it",
        default="",
    )
    connect_timeout_ns: int = setting("connect_timeout", DURATION, "how long connecting may take", default=3 * _S)
    answer_timeout_ns: int = setting("answer_timeout", DURATION, "how long one answer may take", default=30 * _S)
    body_bytes_max: int = setting("body_max", size(1 << 10, 64 << 20), "the largest body of a request", default=1 << 20)
    answer_bytes_max: int = setting(
        "answer_max", size(1 << 10, 64 << 20), "how much of an answer is kept and passed on", default=1 << 20
    )
    log_level: str = setting(
        "log_level", choice("debug", "info", "warning", "error"), "what is logged to stderr", default="info"
    )

    @property
    def mode(self) -> FenceMode:
        return FenceMode(self.mode_name)


def load_proxy(path: Path, environment: Mapping[str, str]) -> ProxySettings:
    """Read `[proxy]` of ``path``; other tables may be a node's. Raises :class:`ConfigurationError`, naming each
    problem with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    document = Document(str(path), text, path.absolute().parent)
    if not document.problems and "proxy" not in document.root:
        document.problem(["proxy"], "missing: a table [proxy] with listen, upstream, fence and cluster")
    settings = document.section(ProxySettings, document.table(document.root, ["proxy"]), ["proxy"])
    if settings is not None and not settings.upstream.startswith(("http://", "https://")):
        document.problem(["proxy", "upstream"], "must begin with http:// or https://")
    if settings is not None and settings.authorization_env and settings.authorization_env not in environment:
        document.problem(["proxy", "authorization_env"], f"{settings.authorization_env} is not set")
    if document.problems or settings is None:
        raise ConfigurationError(
            f"{path} has problems; nothing was started",
            tried=[str(problem) for problem in document.problems],
            next_step=f"correct it, then:  fencepost proxy --config {path}",
        )
    return settings
