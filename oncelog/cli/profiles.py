"""Profiles: named sets of connection settings in a TOML file.

Place in the flow: `options.common` loads the profile of `--profile` or ONCELOG_PROFILE. It is used
in place of ONCELOG_BOOTSTRAP and ONCELOG_CLIENT_*; flags replace single values of it. The file
holds no secret, only the names of files and environment variables that hold one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog.config import SECURITY_SETTINGS, AdminConfig
from oncelog.errors import ConfigError

FILE_ENV = "ONCELOG_PROFILES_FILE"
_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file")
_KEYS = ("bootstrap_servers", "tls", *_FILES, "token_env", "protected")


@dataclass(frozen=True, slots=True)
class Profile:
    """Connection settings. protected: changes that cannot be undone ask for the name."""

    name: str
    bootstrap_servers: tuple[str, ...]
    security: Mapping[str, str | bool | None]  # each of SECURITY_SETTINGS
    protected: bool = False


def profiles_file() -> Path:
    """Return the file of ONCELOG_PROFILES_FILE, or the user's own."""
    given = os.environ.get(FILE_ENV)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "oncelog" / "profiles.toml"


def profile_names() -> list[str]:
    """Return the names in the file; none if there is no file. Raises ConfigError."""
    path = profiles_file()
    return sorted(_read(path)) if path.exists() else []


def load_profile(name: str) -> Profile:
    """Load a profile. Raises ConfigError, which names the file, the field and the value."""
    path = profiles_file()
    tables = _read(path)
    if name not in tables:
        raise ConfigError(f"{path}: no profile {name!r}{_hint(name, tables)}", "profile")
    given, where = tables[name], f"{path}: {name}"
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: {given!r} must be a table: [{name}]", "profile")
    for key, value in given.items():
        _check(where, key, value)
    security: dict[str, Any] = dict.fromkeys(SECURITY_SETTINGS)
    security.update((key, given[key]) for key in security.keys() & given.keys())
    for key in _FILES:
        if security[key] is not None:
            security[key] = _existing(f"{where}.{key}", path.parent, security[key])
    if "token_env" in given:
        security["token"] = os.environ.get(given["token_env"])
        if not security["token"]:
            text = f"the environment has no variable {given['token_env']!r}: set it to the token"
            raise ConfigError(f"{where}.token_env: {text}", "token_env")
    servers = given.get("bootstrap_servers")
    if servers is None:
        raise ConfigError(f"{where}.bootstrap_servers: is missing; name nodes as host:port")
    used = {key: value for key, value in security.items() if value} or {"tls": True}
    try:
        # With no security setting at all, a client takes those of the environment.
        config = AdminConfig.from_settings({"bootstrap_servers": servers, **used})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", *error.settings) from None
    return Profile(name, config.bootstrap_servers, security, given.get("protected", False))


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{path}: {error.strerror}; write it, or name another file in {FILE_ENV}"
        raise ConfigError(text, "profile") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}", "profile") from None


def _check(where: str, key: str, value: object) -> None:
    if key == "token":  # not printed
        text = "a secret does not belong in this file; use token_file or token_env"
        raise ConfigError(f"{where}.token: {text}", key)
    if key not in _KEYS:
        raise ConfigError(f"{where}.{key}: not a setting of a profile{_hint(key, _KEYS)}", key)
    if key in ("tls", "protected") and not isinstance(value, bool):
        raise ConfigError(f"{where}.{key}: {value!r} must be true or false", key)
    if key in (*_FILES, "token_env") and not (isinstance(value, str) and value):
        raise ConfigError(f"{where}.{key}: {value!r} must be a non-empty string", key)


def _existing(where: str, folder: Path, name: str) -> str:
    """Return a file's path, relative to the folder of the profiles. Raises ConfigError."""
    path = folder / Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"{where}: {str(path)!r} is not a file")
    return str(path)


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(names) or 'none'}"
