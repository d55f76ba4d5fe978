"""AES-256-GCM under named keys: the first one encrypts, every one decrypts.

A sealed text is ``nonce (12 random bytes) | ciphertext | tag (16)``. What it belongs to is its
associated data: text that was moved somewhere else, or changed by a bit, does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any, Final

from durable_adk.errors import ConfigError, KeyMissing

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Keys:
    """The keys of a store, by id. Their bytes are in no ``repr`` and in no error."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Raises: ConfigError: a key that has not 32 bytes."""
        for name, key in keys.items():
            if len(key) != KEY_BYTES:
                raise ConfigError(
                    f"encryption.keys.{name}",
                    f"has {len(key)} bytes, not {KEY_BYTES}",
                    "Use 32 random bytes.",
                )
        self._ciphers = {name: _cipher(key) for name, key in keys.items()}
        self._hiding = [_derived(key) for key in keys.values()]
        self.current = next(iter(keys), "")
        """The id of the key that encrypts; empty: nothing is encrypted."""

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._ciphers)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._ciphers)

    def seal(self, data: bytes, about: bytes) -> bytes:
        """Encrypt under the current key, with a fresh nonce."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = self._ciphers[self.current].encrypt(nonce, data, about)
        return nonce + sealed

    def open(self, name: str, sealed: bytes, about: bytes) -> bytes | None:
        """Decrypt; None: it is not what was sealed about this.

        Raises:
            KeyMissing: there is no key of this name.
        """
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(name)
        if cipher is None:
            raise KeyMissing(name)
        try:
            data: bytes = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError):  # ValueError: shorter than a nonce
            return None
        return data

    def hidden(self, digest: str) -> tuple[str, ...]:
        """What stands for a digest of content where it is compared in the open: keyed, under each
        key, the current one first, and at last as it is. Without keys, only that."""
        keyed = [hmac.new(key, digest.encode(), hashlib.sha256).hexdigest() for key in self._hiding]
        return (*(text[: len(digest)] for text in keyed), digest)


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _derived(key: bytes) -> bytes:
    """A key of its own for digests."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"durable-adk digests").derive(key)
