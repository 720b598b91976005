"""A device that keeps a passkey, and the browser between it and a page."""

import json
import os
import re
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import unescape
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256, CoseKey
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

from tests.support.accounts.browser import Browser

ADD = "/account/2fa/passkeys/add/"
SIGN_IN = "/account/login/passkey/"
_FLAG = AuthenticatorData.FLAG


@dataclass(frozen=True, kw_only=True)
class Device:
    """`origin` is the page that it believes itself on; `verifies` is whether it asks its owner for
    a finger or a PIN."""

    origin: str
    rp_id: str
    verifies: bool = True
    cross_origin: bool = False
    user_handle: str = ""
    credential_id: bytes = field(default_factory=lambda: os.urandom(16))
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1()), repr=False
    )

    def of(self, user_handle: str) -> "Device":
        return replace(self, user_handle=user_handle)

    def create(self, options: Any) -> dict[str, Any]:
        """What `navigator.credentials.create` answers, as JSON."""
        told = self._client_data("webauthn.create", options)
        public: CoseKey = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]
        kept = AttestedCredentialData.create(b"\0" * 16, self.credential_id, public)
        about = self._authenticator_data(kept)
        attested = AttestationObject.create("none", about, {})
        return self._answer(clientDataJSON=told, attestationObject=attested)

    def get(self, options: Any) -> dict[str, Any]:
        """What `navigator.credentials.get` answers, as JSON."""
        told = self._client_data("webauthn.get", options)
        about = self._authenticator_data()
        signature = self.key.sign(about + told.hash, ec.ECDSA(hashes.SHA256()))
        answer = self._answer(clientDataJSON=told, authenticatorData=about, signature=signature)
        answer["response"]["userHandle"] = self.user_handle
        return answer

    def _client_data(self, kind: str, options: Any) -> CollectedClientData:
        challenge = websafe_decode(options["publicKey"]["challenge"])
        return CollectedClientData.create(kind, challenge, self.origin, self.cross_origin)

    def _authenticator_data(self, kept: bytes = b"") -> AuthenticatorData:
        flags = _FLAG.UP | (_FLAG.UV if self.verifies else 0) | (_FLAG.AT if kept else 0)
        of_whom = sha256(self.rp_id.encode()).digest()
        about: AuthenticatorData = AuthenticatorData.create(of_whom, flags, 0, kept)
        return about

    def _answer(self, **parts: bytes) -> dict[str, Any]:
        name = websafe_encode(self.credential_id)
        return {
            "id": name,
            "rawId": name,
            "type": "public-key",
            "response": {part: websafe_encode(told) for part, told in parts.items()},
            "clientExtensionResults": {},
        }


def options_of(browser: Browser, path: str) -> Any:
    """What a page asks the browser for."""
    found = re.search(r'data-options="([^"]+)"', browser.get(path).content.decode())
    assert found is not None
    return json.loads(unescape(found[1]))


def challenge_of(browser: Browser) -> Any:
    """What the page of sign-in asks for before anybody is known."""
    return browser.http.get(SIGN_IN, headers={"Accept": "application/json"}).json()


def add(browser: Browser, device: Device, name: str = "laptop") -> tuple[Any, Device]:
    """Add it to the account that is signed in: the answer, and the device with the account's
    handle."""
    options = options_of(browser, ADD)
    answer = browser.send(ADD, name=name, credential=json.dumps(device.create(options)))
    return answer, device.of(options["publicKey"]["user"]["id"])


def sign_in(browser: Browser, device: Device, **fields: str) -> Any:
    answer = device.get(challenge_of(browser))
    return browser.send(SIGN_IN, credential=json.dumps(answer), **fields)
