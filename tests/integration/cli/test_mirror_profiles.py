"""`oncelog mirror --to-profile`: two clusters, each with an identity of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.local_cluster import LocalCluster
from oncelog import Admin, Consumer, Producer
from oncelog.cli.app import run
from tests.integration.ops.consoles import as_person, guarded, token_of

PROFILES = """
[plain]
bootstrap_servers = "{plain}"

[guarded]
bootstrap_servers = "{guarded}"
tls_ca_file = "{ca}"
token_env = "ITS_TOKEN"
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


@pytest.fixture
def profiles(
    cluster: LocalCluster, secured: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "profiles.toml"
    ca = secured.client_files["tls_ca_file"]
    file.write_text(
        PROFILES.format(plain=cluster.bootstrap, guarded=secured.bootstrap, ca=ca), "utf-8"
    )
    monkeypatch.setenv("ONCELOG_PROFILES_FILE", str(file))
    monkeypatch.setenv("ITS_TOKEN", token_of("boss"))


def code_of(*words: str) -> object:
    with pytest.raises(SystemExit) as exited:
        run(["mirror", *words])
    return exited.value.code


def test_each_cluster_gets_its_own_identity(
    cluster: LocalCluster, secured: LocalCluster, topic: str, profiles: None
) -> None:
    """A plain cluster does not understand TLS, and the guarded one refuses a client without it."""
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"there and back").result(60)
    out = ("--profile", "plain", "--to-profile", "guarded", "-e")
    back = ("--profile", "guarded", "--to-profile", "plain", "-e")
    copy = f"{topic}-copy"
    assert code_of(topic, copy, *out) == 0
    assert code_of(copy, f"{topic}-back", *back) == 0
    with Consumer(
        f"{topic}-back", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.getone().value == b"there and back"
    with Admin(**as_person(secured, "boss")) as boss:
        assert boss.describe_topic(copy).partitions[0].high_watermark == 1


def test_the_engine_of_one_identity_is_refused(
    profiles: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("a", "b", "--engine", "spark", "--to-profile", "guarded")
    assert code_of(*words) == 2
    assert "--to-profile is not for --engine spark" in capsys.readouterr().err
    assert code_of("a", "b", "--to-profile", "guarden") == 1
    assert "did you mean guarded?" in capsys.readouterr().err
