"""Where the client commands have their settings from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.client_settings import DEFAULT_ENDPOINTS, resolve
from fencepost.raft.core.errors import ConfigurationError


def test_precedence_is_flag_environment_context_file_default(tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_text(
        '[client]\nendpoints = ["file:1"]\ntimeout = "1s"\noutput = "tsv"\ncolor = "never"\n'
        '[contexts.far]\nendpoints = ["context:1"]\ntimeout = "2s"\noutput = "json"\n'
    )
    home = {"HOME": str(tmp_path / "home")}
    assert resolve({}, home, tmp_path / "elsewhere").endpoints == DEFAULT_ENDPOINTS
    assert resolve({}, home, tmp_path).endpoints == ("file:1",)
    assert resolve({}, {**home, "FENCEPOST_CONTEXT": "far"}, tmp_path).endpoints == ("context:1",)
    found = resolve({"context": "far", "output": "jsonl"}, {**home, "FENCEPOST_TIMEOUT": "3s"}, tmp_path)
    assert (found.endpoints, found.timeout_ns, found.output, found.color, found.time) == (
        ("context:1",), 3_000_000_000, "jsonl", "never", "relative",
    )  # fmt: skip
    assert resolve({"endpoints": "a:1, b:2,a:1"}, home, tmp_path).endpoints == ("a:1", "b:2")


def test_a_context_may_be_a_file_and_the_user_has_one(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "fencepost.toml").write_text('[client]\nendpoints = ["x:1"]\n')
    assert resolve({"context": "x/fencepost.toml"}, {"HOME": "/none"}, tmp_path).endpoints == ("x:1",)
    user = tmp_path / "home" / ".config" / "fencepost"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[client]\nendpoints = ["user:1"]\n')
    assert resolve({}, {"HOME": str(tmp_path / "home")}, tmp_path).endpoints == ("user:1",)


@pytest.mark.parametrize(
    ("flags", "variables", "says"),
    [
        ({"endpoints": "a"}, {}, 'flag --endpoints: endpoints: "a" is not an address such as'),
        ({}, {"FENCEPOST_TIMEOUT": "5"}, 'environment FENCEPOST_TIMEOUT: timeout: "5" is not a duration such as'),
        ({}, {"FENCEPOST_QUIET": "maybe"}, 'environment FENCEPOST_QUIET: quiet: "maybe" is not true or false'),
        ({"context": "fare"}, {}, "contexts of the client file: far"),
        ({"context": "./none.toml"}, {}, "cannot read"),
    ],
)
def test_settings_that_are_wrong_name_their_source(
    tmp_path: Path, flags: dict[str, str], variables: dict[str, str], says: str
) -> None:
    (tmp_path / "fencepost.toml").write_text("[contexts.far]\n")
    with pytest.raises(ConfigurationError) as raised:
        resolve(flags, {"HOME": "/none", **variables}, tmp_path)
    assert any(line.startswith(says) for line in (*raised.value.tried, raised.value.message))


def test_an_unknown_key_of_the_client_file(tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_text("[client]\nendpoint = []\n[context.x]\n")
    with pytest.raises(ConfigurationError) as raised:
        resolve({}, {}, tmp_path)
    assert [line.partition(": ")[2] for line in raised.value.tried] == [
        "context: unknown section; did you mean 'contexts'?",
        "client.endpoint: unknown key; did you mean 'endpoints'?",
    ]
