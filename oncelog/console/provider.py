"""The identity provider: its addresses and keys, and the tokens that it grants.

    Console --login_url, exchange--> IdentityProvider --HTTPS--> the provider
    Sessions --refresh-------------'

Only the setting names the issuer. Its metadata names the other addresses, all HTTPS, or on
loopback. Redirects and proxies are not used.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

import jwt

from oncelog.console.listening import OidcConfig, is_guarded_url
from oncelog.console.oidc import (
    GrantedTokens,
    GrantEndedError,
    LoginAttempt,
    LoginError,
    claims_of,
    short,
)
from oncelog.errors import ConfigError

MAX_BYTES = 1024 * 1024
TIMEOUT_S = 5.0  # of the provider, for each part and for all together
FRESH_S = 300.0  # metadata and keys are fetched again after that
RETRY_S = 10.0  # between two requests for an unknown key
FAILED_S = 2.0  # the same error holds for others that ask
LEEWAY_S = 10  # between the provider's clock and ours, as of the nodes
MAX_TOKEN_CHARS = 8192  # nodes take no longer ones
_PIECE = 64 * 1024
_TIMES = ("iat", "nbf", "exp")


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """Metadata of a provider (OpenID Connect Discovery)."""

    authorization: str
    token: str
    end_session: str  # empty: there is none
    names_itself: bool  # in its answers (RFC 9207)
    takes_basic: bool
    keys: Mapping[str, jwt.PyJWK]  # by their id


class IdentityProvider:
    """One provider, as the settings name it. Raises ConfigError for an unusable CA file."""

    def __init__(self, config: OidcConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        try:
            context = ssl.create_default_context(cafile=config.ca_file)
        except OSError as error:
            text = f"oidc_ca_file: {config.ca_file}: {error}"
            raise ConfigError(text, "oidc_ca_file") from None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context),
            _RefusedRedirects,
        )  # fmt: skip
        self._metadata: ProviderMetadata | None = None
        self._fetched_at = self._failed_at = -math.inf
        self._failure: LoginError | None = None
        self._lock = asyncio.Lock()

    async def login_url(self, attempt: LoginAttempt, callback: str) -> str:
        """Return the address where a person logs in. Raises LoginError."""
        config, metadata = self._config, await self._look()
        query = {
            "response_type": "code",
            "client_id": config.client_id,
            "redirect_uri": callback,
            "scope": config.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
            **self._resource(),
            # Without it a provider must ignore that scope (OpenID Connect Core, 11).
            **({"prompt": "consent"} if "offline_access" in config.scopes.split() else {}),
        }
        return _with_query(metadata.authorization, query)

    async def exchange(
        self, answer: Mapping[str, str], attempt: LoginAttempt, callback: str
    ) -> GrantedTokens:
        """Return the tokens for the provider's answer to an attempt. Raises LoginError."""
        metadata, issuer = await self._look(), answer.get("iss")
        if issuer != self._config.issuer and (issuer is not None or metadata.names_itself):
            name = "nobody" if issuer is None else short(issuer)
            text = f"The answer comes from {name}, not from {self._config.issuer}. Log in again."
            raise LoginError(text, 400)
        if "code" not in answer:
            said = short(answer.get("error_description", ""))
            text = f"{self._config.issuer} did not log you in: {short(answer.get('error', '?'))}"
            raise LoginError(f"{text} ({said})." if said else f"{text}.", 403)
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": callback,
            "code_verifier": attempt.verifier,
        }
        given = await self._grant(form)
        claims = await self._claims(_field(given, "id_token"))
        if claims.get("nonce") != attempt.nonce:
            raise LoginError("The ID token is of another login: its nonce differs.", 400)
        return _tokens(given, claims["sub"], "", given["id_token"])

    async def refresh(self, held: GrantedTokens) -> GrantedTokens:
        """Return new tokens of the same person. Raises GrantEndedError, LoginError."""
        given = await self._grant({"grant_type": "refresh_token", "refresh_token": held.refresh})
        identity = given.get("id_token") or held.identity
        if identity != held.identity and (await self._claims(identity))["sub"] != held.subject:
            raise GrantEndedError("The provider answered with the token of another person.", 401)
        return _tokens(given, held.subject, held.refresh, identity)

    def logout_url(self, held: GrantedTokens, back: str) -> str:
        """Return the address that ends the person's session at the provider; empty: there is none.

        back: where the provider sends the person then.
        """
        if self._metadata is None or not self._metadata.end_session:
            return ""
        query = {
            "id_token_hint": held.identity,
            "client_id": self._config.client_id,
            "post_logout_redirect_uri": back,
        }
        return _with_query(self._metadata.end_session, query)

    # --- tokens ----------------------------------------------------------------------

    async def _grant(self, form: dict[str, str]) -> dict[str, Any]:
        """Ask for tokens. Raises GrantEndedError, LoginError."""
        config, metadata, headers = self._config, await self._look(), dict[str, str]()
        if config.client_secret is not None and metadata.takes_basic:
            pair = f"{quote(config.client_id, safe='')}:{quote(config.client_secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form = {**form, "client_id": config.client_id}
            if config.client_secret is not None:
                form["client_secret"] = config.client_secret
        status, given = await self._ask(metadata.token, {**form, **self._resource()}, headers)
        if status == 200:
            return given
        error = short(str(given.get("error", f"status {status}")))
        said = short(str(given.get("error_description", "")))
        text = f"{config.issuer} gave no token: {error}" + (f" ({said})." if said else ".")
        if error == "invalid_grant":
            raise GrantEndedError(f"{text} Log in again.", 401)
        raise LoginError(text, 503 if status >= 500 else 502)

    def _resource(self) -> dict[str, str]:
        return {} if self._config.resource is None else {"resource": self._config.resource}

    async def _claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid ID token. Raises LoginError."""
        metadata = await self._look()
        if _key_of(token, metadata.keys) is None:
            metadata = await self._look(again=True)
        return id_token_claims(token, metadata.keys, self._config)

    # --- metadata and keys -----------------------------------------------------------

    async def _look(self, again: bool = False) -> ProviderMetadata:
        """Return the provider's metadata. again: it lacked a key. Raises LoginError."""
        async with self._lock:
            now = self._clock()
            if self._metadata is not None:
                if now - self._fetched_at < (RETRY_S if again else FRESH_S):
                    return self._metadata
            if self._failure is not None and now - self._failed_at < FAILED_S:
                raise type(self._failure)(self._failure.text, self._failure.status)
            try:
                self._metadata = await self._fetched()
            except LoginError as error:
                self._failure = error
                self._failed_at = self._clock()
                raise
            self._failure = None
            self._fetched_at = self._clock()
            return self._metadata

    async def _fetched(self) -> ProviderMetadata:
        issuer = self._config.issuer
        where = issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = await self._known(where)
        if found.get("issuer") != issuer:
            said = short(str(found.get("issuer")))
            text = f"The provider at {issuer} says that its name is {said}: set --oidc-issuer so."
            raise LoginError(text, 502)
        addresses = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", *_OPTIONAL):
            address = found.get(name, "" if name in _OPTIONAL else None)
            if not isinstance(address, str) or (address and not is_guarded_url(address)):
                text = f"{name} of {issuer} is {short(str(address))}: it must be an https address"
                raise LoginError(f"{text}.", 502)
            addresses[name] = address
        methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return ProviderMetadata(
            addresses["authorization_endpoint"],
            addresses["token_endpoint"],
            addresses["end_session_endpoint"],
            found.get("authorization_response_iss_parameter_supported") is True,
            not isinstance(methods, list) or "client_secret_basic" in methods,
            parsed_keys(await self._known(addresses["jwks_uri"])),
        )

    async def _known(self, url: str) -> dict[str, Any]:
        status, found = await self._ask(url)
        if status != 200:
            text = f"The provider {self._config.issuer} answered with status {status} at {url}"
            raise LoginError(f"{text}: is --oidc-issuer right?", 502)
        return found

    async def _ask(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Return status and fields of an answer. Raises LoginError."""
        try:
            async with asyncio.timeout(TIMEOUT_S):  # also while its name is looked up
                status, data = await asyncio.to_thread(self._fetch, url, form, headers or {})
            found = json.loads(data)
        except (OSError, HTTPException) as error:  # also TimeoutError and ssl.SSLError
            reason = str(getattr(error, "reason", None) or error) or f"{TIMEOUT_S:.0f} s are over"
            text = f"The provider {self._config.issuer} does not answer: {short(reason)}."
            raise LoginError(f"{text} Try again later.", 503) from None
        except (ValueError, RecursionError) as error:
            text = f"The provider {self._config.issuer} did not answer in JSON at {url}: {error}."
            raise LoginError(text, 502) from None
        if not isinstance(found, dict):
            raise LoginError(f"The provider's answer at {url} is not an object.", 502)
        return status, found

    def _fetch(
        self, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Called in a thread. Raises OSError, HTTPException, ValueError."""
        deadline = time.monotonic() + TIMEOUT_S
        body = None if form is None else urlencode(form).encode()
        request = urllib.request.Request(url, body, {"accept": "application/json", **headers})
        try:
            answer = self._opener.open(request, timeout=TIMEOUT_S)
        except HTTPError as error:
            answer = error
        data = b""
        with answer:
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > MAX_BYTES:
                    raise ValueError(f"the answer is longer than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError("the answer does not come to its end")
        # An error may come as a page.
        return answer.status, data if answer.status == 200 or _is_json(answer) else b"{}"


_OPTIONAL = ("end_session_endpoint",)


class _RefusedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Return None: a redirect is an error, as it would choose the console's target."""


def id_token_claims(
    token: str, keys: Mapping[str, jwt.PyJWK], config: OidcConfig
) -> dict[str, Any]:
    """Return the claims of a valid ID token (OpenID Connect Core, 3.1.3.7).

    The key decides the algorithm. Raises LoginError.
    """
    key = _key_of(token, keys)
    if key is None:
        raise LoginError("The ID token is not signed with a key of the provider.", 502)
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            issuer=config.issuer,
            audience=config.client_id,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "aud", "iss", "sub"]},
        )
        parties = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims.get("azp", config.client_id if len(parties) == 1 else None) != config.client_id:
            raise jwt.InvalidAudienceError("azp is another client")
    except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
        stated = claims_of(token)
        times = ", ".join(f"{name} {_when(stated[name])}" for name in _TIMES if name in stated)
        raise LoginError(
            f"The ID token of {config.issuer} is not valid now: it says {times}, and this machine "
            f"has {_when(time.time())}. Set the clocks of both machines.",
            502,
        ) from None
    except jwt.InvalidIssuerError:
        issuer = short(str(claims_of(token).get("iss")))
        text = f"The ID token is by the issuer {issuer}, and --oidc-issuer is {config.issuer}."
        raise LoginError(text, 502) from None
    except jwt.InvalidAudienceError:
        client = short(str(claims_of(token).get("aud")))
        text = f"The ID token is for the client {client}, but --oidc-client-id is"
        raise LoginError(f"{text} {config.client_id}.", 502) from None
    except jwt.PyJWTError as error:
        raise LoginError(f"The ID token is not valid: {error}.", 502) from None
    return claims


def parsed_keys(found: dict[str, Any]) -> dict[str, jwt.PyJWK]:
    """Return the keys that check signatures, by their id. Raises LoginError."""
    try:
        listed = jwt.PyJWKSet.from_dict(found).keys
    except (jwt.PyJWTError, TypeError, AttributeError) as error:
        raise LoginError(f"The provider has no usable keys: {error}.", 502) from None
    return {
        key.key_id or "": key
        for key in listed
        if key.key_type in ("RSA", "EC", "OKP") and key.public_key_use in (None, "sig")
    }


def _key_of(token: str, keys: Mapping[str, jwt.PyJWK]) -> jwt.PyJWK | None:
    """Return the key that a token names. A single key needs no name."""
    try:
        name = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError as error:
        raise LoginError(f"The ID token is not a JWT: {error}.", 502) from None
    if name is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(str(name or ""))


def _tokens(given: Mapping[str, Any], subject: str, refresh: str, identity: str) -> GrantedTokens:
    """Return the tokens of an answer. refresh: the present one, if the answer has no other.

    Raises LoginError.
    """
    access = _field(given, "access_token")
    is_sendable = len(access) <= MAX_TOKEN_CHARS and access.isascii() and access.isprintable()
    if str(given.get("token_type", "")).lower() != "bearer" or not is_sendable:
        text = f"The access token must be a bearer token of at most {MAX_TOKEN_CHARS} characters."
        raise LoginError(text, 502)
    life = _number(given.get("expires_in"))
    if life is None:
        ends = _number(claims_of(access).get("exp"))
        life = math.inf if ends is None else ends - time.time()
    return GrantedTokens(access, identity, given.get("refresh_token") or refresh, life, subject)


def _field(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise LoginError(f"The provider's answer has no {name}.", 502)
    return value


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _when(value: object) -> str:
    number = _number(value)
    try:
        return datetime.fromtimestamp(number or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return short(str(value))


def _is_json(answer: Any) -> bool:
    return str(answer.headers.get_content_type()).endswith("json")


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


__all__ = ["IdentityProvider", "ProviderMetadata", "id_token_claims", "parsed_keys"]
