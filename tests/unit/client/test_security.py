"""TLS settings of a client: contradictions, sources, and secrets that are never shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import (
    SubjectAlternativeName,
    UniformResourceIdentifier,
    load_pem_x509_certificate,
)

from oncelog._engine.net.channels import Channels, _Token
from oncelog.certificates import make_authorities, make_client, make_node
from oncelog.config import AdminConfig, ProducerConfig
from oncelog.dotted import settings_from_dotted
from oncelog.errors import ConfigError
from oncelog.spark.source.options import SourceOptions

SERVERS = ("a:1",)


def config(**settings: Any) -> AdminConfig:
    return AdminConfig(bootstrap_servers=SERVERS, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"token": "t"}, "token needs tls"),
        ({"token_file": "t"}, "token_file needs tls"),
        ({"tls": True, "token": "t", "token_file": "f"}, "token contradicts token_file"),
        ({"tls_cert_file": "c"}, "tls_cert_file and tls_key_file belong together"),
        ({"tls": "yes"}, "tls must be True or False"),
        ({"tls_ca_file": 7}, "tls_ca_file must be a non-empty string"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**settings)


def test_the_environment_is_taken_only_where_no_setting_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not config().secured
    monkeypatch.setenv("ONCELOG_CLIENT_TLS", "true")
    monkeypatch.setenv("ONCELOG_CLIENT_TOKEN", "secret")
    assert config().secured
    assert config().token == "secret"
    # A token of the environment is not sent to a server that another CA vouches for.
    assert config(tls_ca_file="ca").token is None
    monkeypatch.setenv("ONCELOG_CLIENT_TLS", "yes")
    with pytest.raises(ConfigError, match="ONCELOG_CLIENT_TLS must be one of true, false"):
        config()


def test_a_token_is_never_shown() -> None:
    shown = repr(config(tls=True, token="secret"))
    assert "secret" not in shown
    assert "secret" not in repr(ProducerConfig(bootstrap_servers=SERVERS, tls=True, token="secret"))


def test_dotted_names_and_sparks_options_are_the_same_settings() -> None:
    dotted = {"bootstrap.servers": "a:1", "tls": "true", "tls.ca.file": "ca", "token.file": "t"}
    settings = settings_from_dotted(AdminConfig, dotted)
    assert settings.pop("bootstrap_servers") == "a:1"
    assert settings == {"tls": True, "tls_ca_file": "ca", "token_file": "t"}
    options = SourceOptions.parse({**dotted, "subscribe": "x"})
    assert options.client_settings == {"request_timeout_ms": 10_000, **settings}
    assert config(**options.client_settings).secured


def test_files_that_are_of_no_use_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls_ca_file: /nowhere: No such file"):
        Channels(config(tls_ca_file="/nowhere"))
    token = tmp_path / "token"
    token.write_text("\n")
    with pytest.raises(ConfigError, match="holds no token"):
        Channels(config(tls=True, token_file=str(token)))


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    plugin = _Token(None, str(path))
    sent: list[Any] = []
    plugin(None, lambda metadata, error: sent.append((metadata, error)))
    other = tmp_path / "other"
    other.write_text("two\n")
    other.replace(path)
    plugin(None, lambda metadata, error: sent.append((metadata, error)))
    path.unlink()
    plugin(None, lambda metadata, error: sent.append((metadata, error)))
    assert [one[0] for one in sent] == [
        (("authorization", "Bearer one"),), (("authorization", "Bearer two"),), (),
    ]  # fmt: skip
    assert isinstance(sent[2][1], ConfigError)


def test_certificates_of_the_command_line_are_private_and_kept(tmp_path: Path) -> None:
    make_authorities(tmp_path, days=1)
    with pytest.raises(ConfigError, match="exists: its certificates would become invalid"):
        make_authorities(tmp_path, days=1)
    made = make_node(tmp_path, 1, "my cluster", ["127.0.0.1", "node1"], 1)
    principal, more = make_client(tmp_path, "spiffe://example.org/billing", 1)
    assert principal == "spiffe://example.org/billing"
    assert make_client(tmp_path, "billing", 1)[0] == "dns:billing"
    for path in [*made, *more, *tmp_path.glob("*.key")]:
        assert os.stat(path).st_mode & 0o777 == (0o600 if path.suffix == ".key" else 0o644)
    machine = make_node(tmp_path, 2, "c", ["node2"], 1, [102, 202])
    shown = load_pem_x509_certificate(next(p for p in machine if p.name == "peer.crt").read_bytes())
    names = shown.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(UniformResourceIdentifier) == [
        f"oncelog://c/node/{node}" for node in (2, 102, 202)
    ]
    for name in ("Billing", "*.example.org", "oncelog://c/node/1", "a\0b", "", "http://a/?b"):
        with pytest.raises(ConfigError, match="name: "):
            make_client(tmp_path, name, 1)
    with pytest.raises(ConfigError, match="no authority ca"):
        make_client(tmp_path / "nowhere", "billing", 1)
    with pytest.raises(ConfigError, match="host: 'Node1'"):
        make_node(tmp_path, 1, "c", ["Node1"], 1)
