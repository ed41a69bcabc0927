"""Command `oncelog console`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import cast

import click

from oncelog.cli.options import common
from oncelog.cli.output import print_json
from oncelog.config import AdminConfig
from oncelog.errors import ConfigError, MissingExtraError

_FILE = click.Path(exists=True, dir_okay=False)
PACKAGES = ("starlette", "uvicorn", "jinja2")
OIDC_PACKAGES = ("jwt", "cryptography")
# Options that only one login uses.
_USED_BY = {
    "oidc": (
        "oidc_issuer", "oidc_client_id", "oidc_client_secret_file", "oidc_scopes", "oidc_resource",
        "oidc_ca_file",
    ),
    "own": ("token_file", "tls_cert_file", "tls_key_file"),
}  # fmt: skip


@click.command()
@click.option("--listen", default="127.0.0.1:8470", show_default=True, metavar="HOST:PORT",
              help="Address of the pages; port 0 takes a free one.")  # fmt: skip
@click.option("--login", type=click.Choice(["own", "token", "oidc"]), default="own",
              show_default=True, help="own: the printed link acts as you. token: people paste "
              "theirs. oidc: people log in at a provider.")  # fmt: skip
@click.option("--oidc-issuer", metavar="URL", help="Provider where people log in.")
@click.option("--oidc-client-id", metavar="NAME", help="The console's name at the provider.")
@click.option("--oidc-client-secret-file", type=_FILE, help="Its secret, if it has one.")
@click.option("--oidc-scopes", show_default="openid", metavar="'NAME ...'",
              help="Scopes to ask for, such as offline_access for refresh tokens.")  # fmt: skip
@click.option("--oidc-resource", metavar="URI",
              help="Resource of the access token, if the provider wants one.")  # fmt: skip
@click.option("--oidc-ca-file", type=_FILE, help="CAs of the provider instead of the system's.")
@click.option("--https-cert-file", type=_FILE, help="Certificate of the pages.")
@click.option("--https-key-file", type=_FILE, help="Its key.")
@click.option("--public-url", metavar="URL",
              help="Address that people open, if a proxy is in front.")  # fmt: skip
@click.option("--allow-changes", is_flag=True, help="Offer changes, each with its effects first.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback without TLS: in a container with a port on loopback, or behind a "
    "proxy with TLS.",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="TOPIC:PART",
    help="Hide value, key, header=NAME or json=PATH of a topic's records.",
)
@common
def console(
    bootstrap: tuple[str, ...],
    as_json: bool,
    listen: str,
    login: str,
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_client_secret_file: str | None,
    oidc_scopes: str | None,
    oidc_resource: str | None,
    oidc_ca_file: str | None,
    https_cert_file: str | None,
    https_key_file: str | None,
    public_url: str | None,
    allow_changes: bool,
    insecure: bool,
    masks: tuple[str, ...],
) -> None:
    """Show the cluster in a web browser.

    The pages act with your identity, so anybody with the printed link sees the records that you may
    read. Without --allow-changes they only read.
    """
    needed = (*PACKAGES, *(OIDC_PACKAGES if login == "oidc" else ()))
    missing = next((name for name in needed if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtraError("oncelog console", missing, "console")
    from oncelog.console.listening import ConsoleConfig, Login, OidcConfig, parse_listen
    from oncelog.console.masks import parse_mask
    from oncelog.console.server import serve

    _refuse_unused(login)
    host, port = parse_listen(listen)
    clients = AdminConfig(bootstrap_servers=bootstrap)
    oidc = None
    if login == "oidc":
        oidc = OidcConfig(
            oidc_issuer or "", oidc_client_id or "", _secret(oidc_client_secret_file),
            "openid" if oidc_scopes is None else oidc_scopes, oidc_resource, oidc_ca_file,
        )  # fmt: skip
    config = ConsoleConfig(
        host, port, clients, cast(Login, login), https_cert_file, https_key_file, allow_changes,
        insecure, tuple(map(parse_mask, masks)), oidc, public_url,
    )  # fmt: skip

    def ready(link: str) -> None:
        if as_json:
            print_json({"link": link})
        else:
            click.echo(f"console: {link}")

    serve(config, ready)


def _refuse_unused(login: str) -> None:
    """Refuse an option that another login would use. Raises ConfigError."""
    given = click.get_current_context().params
    for wanted, names in _USED_BY.items():
        for name in names:
            if wanted != login and given.get(name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(
                    f"{name}: --login {login} does not use {option}; leave it out, or use "
                    f"--login {wanted}",
                    name, "login",
                )  # fmt: skip


def _secret(path: str | None) -> str | None:
    """Return the secret in a file. Raises ConfigError."""
    if path is None:
        return None
    setting = "oidc_client_secret_file"
    try:
        secret = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting}: {path}: {error}", setting) from None
    if not secret:
        raise ConfigError(f"{setting}: {path} is empty; write the provider's secret to it", setting)
    return secret
