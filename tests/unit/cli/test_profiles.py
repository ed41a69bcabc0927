"""Profiles of the command line: precedence, secrets by reference, errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from oncelog.cli.options import common, profile_option, yes_option
from oncelog.cli.profiles import load_profile, profile_names
from oncelog.cli.streams import confirm
from oncelog.config import AdminConfig
from oncelog.errors import ConfigError

TEXT = """
[prod]
bootstrap_servers = ["a:7001", "b:7001"]
tls_ca_file = "ca.crt"
token_env = "PROD_TOKEN"
protected = true
[laptop]
bootstrap_servers = "127.0.0.1:7001"
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    path.write_text(TEXT)
    (tmp_path / "ca.crt").write_text("")
    for name in [name for name in os.environ if name.startswith("ONCELOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ONCELOG_PROFILES_FILE", str(path))
    monkeypatch.setenv("PROD_TOKEN", "secret")
    return path


def call(*arguments: str) -> tuple[Result, AdminConfig | None]:
    """Run a command below `oncelog`; return the settings that its clients get."""
    seen: list[AdminConfig] = []

    @click.group()
    @profile_option
    def cli(profile: str | None) -> None:
        pass

    @cli.command()
    @yes_option
    @common
    def change(bootstrap: tuple[str, ...], yes: bool, **_: Any) -> None:
        seen.append(AdminConfig(bootstrap_servers=bootstrap))
        confirm("Change?", yes)

    result = CliRunner().invoke(cli, arguments)
    return result, seen[0] if seen else None


def test_a_profile_replaces_the_environment_and_a_flag_replaces_a_value(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "env:7001")
    monkeypatch.setenv("ONCELOG_CLIENT_TLS_CA_FILE", "/of/another/cluster")
    monkeypatch.setenv("ONCELOG_CLIENT_TOKEN_FILE", "/of/another/cluster")
    before = dict(os.environ)
    _, got = call("change", "--yes")
    assert got is not None and got.bootstrap_servers == ("env:7001",)
    for arguments in (("--profile", "prod", "change"), ("change", "--profile", "prod")):
        _, got = call(*arguments)
        assert got is not None
        assert got.bootstrap_servers == ("a:7001", "b:7001")
        assert got.tls_ca_file == str(profiles.parent / "ca.crt")
        assert (got.token, got.token_file) == ("secret", None)
    monkeypatch.setenv("ONCELOG_PROFILE", "laptop")
    _, got = call("change", "--yes")
    assert got is not None and got.bootstrap_servers == ("127.0.0.1:7001",)
    assert not got.secured
    own = tmp_path / "token"
    own.write_text("")
    _, got = call("--profile", "prod", "change", "-b", "c:1", "--token-file", str(own))
    assert got is not None and got.bootstrap_servers == ("c:1",)
    assert (got.token, got.token_file) == (None, str(own))
    assert dict(os.environ) == before | {"ONCELOG_PROFILE": "laptop"}


def test_a_protected_profile_asks_for_its_name(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = call("--profile", "laptop", "change", "--yes")
    assert result.exit_code == 0
    result, _ = call("--profile", "prod", "change", "--yes")
    assert result.exit_code == 2
    assert "profile prod is protected: type its name at a terminal" in result.output


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[x]\nbootstrap_servers = 'a:1'\ntoken = 'hidden'", "x.token: a secret does not belong"),
        ("[x]\ntls_ca = 'a'", "x.tls_ca: not a setting of a profile; did you mean tls_ca_file?"),
        ("[x]\ntls = 'yes'", "x.tls: 'yes' must be true or false"),
        ("[x]\ntoken_file = 7", "x.token_file: 7 must be a non-empty string"),
        ("[x]\ntls = true", "x.bootstrap_servers: is missing; name nodes as host:port"),
        ("[x]\nbootstrap_servers = 'a'", "x: bootstrap_servers: 'a' is not host:port"),
        ("[x]\nbootstrap_servers = 'a:1'\ntls_ca_file = 'none.crt'", "none.crt' is not a file"),
        (
            "[x]\nbootstrap_servers = 'a:1'\ntoken_env = 'NOT_SET'",
            "x.token_env: the environment has no variable 'NOT_SET'",
        ),
        (
            "[x]\nbootstrap_servers = 'a:1'\ntoken_env = 'PROD_TOKEN'",
            "x: token needs tls: in the clear everybody on the way could use it",
        ),
        (
            "[x]\nbootstrap_servers = 'a:1'\ntls_cert_file = 'ca.crt'",
            "x: tls_cert_file and tls_key_file belong together",
        ),
        ("x = 7", "x: 7 must be a table: [x]"),
        ("[y]", "no profile 'x'; there are: y"),
        ("[x", "not a TOML file: "),
    ],
)
def test_an_error_names_the_file_the_field_and_the_value(
    profiles: Path, text: str, error: str
) -> None:
    profiles.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_profile("x")
    assert raised.value.message.startswith(f"{profiles}: ")
    assert error in raised.value.message
    assert "hidden" not in raised.value.message


def test_no_file_and_a_misspelt_name(profiles: Path) -> None:
    assert profile_names() == ["laptop", "prod"]
    with pytest.raises(ConfigError, match="no profile 'prd'; did you mean prod"):
        load_profile("prd")
    profiles.unlink()
    assert profile_names() == []
    with pytest.raises(ConfigError, match="ONCELOG_PROFILES_FILE"):
        load_profile("prod")
