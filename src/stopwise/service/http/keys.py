"""API keys: who may send which requests.

A key reads ``sw_<id>_<secret>``. The file has one JSON object per line, with the SHA-256 of the
secret: 256 random bits cannot be guessed, so that a slow hash, as for passwords, would add nothing.
"""

import math
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError
from stopwise.files import private_file
from stopwise.service.domain.errors import TooManyRequests
from stopwise.service.domain.messages import Name
from stopwise.service.http.errors import Forbidden, Unauthorized
from stopwise.service.server_log import LOG
from stopwise.service.validation import explain

Scope: TypeAlias = Literal["read", "decide", "observe", "admin"]
Time: TypeAlias = Annotated[float, Meta(ge=0, le=253402300799)]  # until the year 9999

UNREAD = "the keys cannot be read again; those read before stay valid"
LOOK_EVERY = 1.0  # seconds until the file is read again
_HEADER = re.compile(r"(?i:bearer) +sw_([a-z0-9]+)_(\S+) *")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key without its secret, as the file has it; times are seconds since 1970."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,32}\Z")]  # may be shown and logged
    name: str  # for people: who uses it
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]
    hash: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]  # of the secret
    created: Time
    expires: Time | None = None
    rate: Annotated[float, Meta(gt=0, le=1e9)] | None = None  # most requests per second
    cascades: tuple[Name, ...] = ()  # that it may use; empty: all

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; admin has all of them, and every key may read."""
        return scope == "read" or scope in self.scopes or "admin" in self.scopes

    @property
    def expired(self) -> bool:
        """Whether it is no longer valid."""
        return self.expires is not None and time.time() >= self.expires


# An unknown id is compared with this: it takes as long as a wrong secret.
_NOBODY: tuple[bytes, Key | None] = (sha256(secrets.token_bytes(32)).digest(), None)


class Keys:
    """The keys of a file, read again when it changes.

    If the file becomes invalid or is deleted, the keys read last stay valid and the log reports it.
    A file that cannot be read at first raises `InvalidParameterError`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._reported = ""  # the problem with the file that was logged last
        self._content: bytes | None = None
        self._full_at: dict[str, float] = {}  # when the token bucket of a key is full again
        self._read()

    # No __len__: a file without keys must not be false, as if no keys were needed.

    def count(self) -> int:
        """Return how many keys are valid now."""
        return sum(not key.expired for _, key in self._by_id.values())

    def reload(self) -> None:
        """Read the file now; log how many keys are valid, or why those read before stay."""
        try:
            self._read()
            LOG.info("keys read again", extra={"keys": self.count()})
        except InvalidParameterError as error:
            LOG.error(UNREAD, extra={"reason": str(error)})

    def check(self, key: Key, scope: Scope | None = None, cascade: str | None = None) -> None:
        """Count a request of a key, and check what it may do.

        Raises `TooManyRequests` if it sends more requests than it may, and `Forbidden` if it lacks
        the scope or may not use the cascade.
        """
        self.count_request(key)
        self.check_rights(key, scope, cascade)

    def count_request(self, key: Key) -> None:
        """Count a request of a key; `TooManyRequests` if it sends more than it may."""
        if key.rate is not None:
            self._take_token(key.id, key.rate)

    def check_rights(self, key: Key, scope: Scope | None, cascade: str | None) -> None:
        """Check the scope and the cascades of a key; `Forbidden` if it does not have these."""
        if scope is not None and not key.may(scope):
            have = ", ".join(key.scopes)
            raise Forbidden(f"this needs a key with the scope {scope}; yours has {have}")
        if cascade is not None and key.cascades and cascade not in key.cascades:
            have = ", ".join(key.cascades)
            raise Forbidden(f"the key {key.id} may use no other cascade than {have}")

    def identify(self, header: str | None) -> Key:
        """Return the key in an Authorization header, whatever it may do, or `Unauthorized`."""
        if time.monotonic() >= self._look_at:
            try:
                self._read()
            except InvalidParameterError as error:
                if self._reported != str(error):
                    self._reported = str(error)
                    LOG.warning(UNREAD, extra={"reason": self._reported})
        if not header:
            raise Unauthorized("send a key: Authorization: Bearer sw_…")
        found = _HEADER.fullmatch(header)
        id_, secret = found.groups() if found else ("", "")
        expected, key = self._by_id.get(id_, _NOBODY)
        given = sha256(secret.encode("utf-8", "replace")).digest()
        if not compare_digest(given, expected) or key is None:
            raise Unauthorized("the key is not valid: mistyped, revoked, or of another service")
        if key.expired:
            raise Unauthorized(f"the key {key.id} has expired")
        return key

    def _take_token(self, id_: str, rate: float) -> None:
        """Take a token from the bucket, which holds those of one second, but at least one."""
        now = time.monotonic()
        full_at = max(self._full_at.get(id_, now), now) + 1 / rate
        wait = full_at - now - max(1.0, 1 / rate)
        if wait > 1e-6:  # more than a rounding error
            words = f"the key {id_} may send {rate:g} requests per second; try again later"
            raise TooManyRequests(words, retry_after=math.ceil(wait))
        self._full_at[id_] = full_at

    def _read(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY
        content = _content(self._path)
        if content != self._content:
            keys = _parsed(self._path, content)
            self._by_id = {key.id: (bytes.fromhex(key.hash[7:]), key) for key in keys}
            self._full_at = {id_: at for id_, at in self._full_at.items() if id_ in self._by_id}
            self._content = content
        self._reported = ""


def read_keys(path: Path) -> list[Key]:
    """Return the keys of a file; `InvalidParameterError` names a bad line by its number only."""
    return _parsed(path, _content(path))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read()
    except OSError as error:
        raise InvalidParameterError(f"cannot read the keys: {error}") from error
    if os.name == "posix" and mode & 0o022:
        raise InvalidParameterError(f"other users can change the keys in {path}: chmod 600 {path}")
    return content


def _parsed(path: Path, content: bytes) -> list[Key]:
    keys: dict[str, Key] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key = msgspec.json.decode(line, type=Key)
        except (msgspec.DecodeError, UnicodeDecodeError):
            words = "is not a key as 'stopwise keys add' writes it"
            raise InvalidParameterError(f"{path}, line {number}: {words}") from None
        if key.id in keys:
            raise InvalidParameterError(f"{path}, line {number}: the key {key.id} is there twice")
        keys[key.id] = key
    return list(keys.values())


def add_key(
    path: Path,
    name: str,
    scopes: Iterable[str],
    expires: float | None = None,
    *,
    rate: float | None = None,
    cascades: Iterable[str] = (),
) -> tuple[Key, str]:
    """Create a key and add it to a file; return what the file has of it, and the key itself."""
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise InvalidParameterError("a key's name has 1 to 100 characters that can be printed")
    now, secret = time.time(), secrets.token_urlsafe(32)
    if expires is not None and expires <= now:
        raise InvalidParameterError("the key would have expired before its first use")
    with _locked(path):
        keys = read_keys(path) if path.exists() else []
        taken = {key.id for key in keys}
        id_ = next(one for one in iter(lambda: secrets.token_hex(4), None) if one not in taken)
        digest = f"sha256:{sha256(secret.encode()).hexdigest()}"
        given = {"id": id_, "name": name, "hash": digest, "created": float(int(now))}
        given |= {"scopes": tuple(dict.fromkeys(scopes)), "expires": expires, "rate": rate}
        given |= {"cascades": tuple(dict.fromkeys(cascades))}
        if not set(scopes) <= set(get_args(Scope)):
            raise InvalidParameterError(f"the scopes are {', '.join(get_args(Scope))}")
        try:
            key = msgspec.convert(given, Key)
        except msgspec.ValidationError as error:
            raise InvalidParameterError(" ".join(explain(error, given))) from None
        _write(path, [*keys, key])
    return key, f"sw_{id_}_{secret}"


def revoke_key(path: Path, id_: str) -> Key:
    """Remove a key from a file; a running service refuses it within a second or two."""
    with _locked(path):
        keys = {key.id: key for key in read_keys(path)}
        if (found := keys.pop(id_, None)) is None:
            # It is never repeated: somebody may have typed the key itself.
            words = "has no key with that id; 'stopwise keys list' shows the ids"
            raise InvalidParameterError(f"{path} {words}")
        _write(path, keys.values())
    return found


def _write(path: Path, keys: Iterable[Key]) -> None:
    with private_file(path) as new:
        new.write_bytes(b"".join(msgspec.json.encode(key) + b"\n" for key in keys))


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Wait until no other process changes the file."""
    if os.name != "posix":
        yield
        return
    import fcntl

    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
        yield
    finally:
        os.close(folder)
