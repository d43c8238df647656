"""API keys: who may send which requests.

A key reads ``sw_<id>_<secret>``. The file has one JSON object a line, with the SHA-256 of the
secret. A slow hash, as for passwords, would add nothing: a secret of 256 random bits cannot be
guessed. A fast one keeps the check within a microsecond or two.
"""

import math
import os
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError
from stopwise.service.journal import trouble
from stopwise.service.messages import Name
from stopwise.service.refusals import Refusal

Scope: TypeAlias = Literal["read", "decide", "observe", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Time: TypeAlias = Annotated[float, Meta(ge=0, le=253402300799)]  # until the year 9999

LOOK_EVERY = 1.0  # seconds between two looks at the file

_START = "sw_"
_USUAL = "Bearer " + _START  # how a header begins


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key without its secret, as the file has it; times are seconds since 1970."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,32}\Z")]  # may be shown and logged
    name: str  # for people: who uses it
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]
    hash: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]  # of the secret
    created: Time
    expires: Time | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None  # most requests a second
    cascades: tuple[Name, ...] = ()  # that it may use; empty: all

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; admin has all of them, and every key may read."""
        return scope == "read" or scope in self.scopes or "admin" in self.scopes

    def expired(self, now: float | None = None) -> bool:
        """Whether its time is over."""
        return self.expires is not None and (time.time() if now is None else now) >= self.expires


class Keys:
    """The keys of a file, read again when it changes.

    If the file becomes invalid or is deleted, the keys read last stay valid and the log says so. A
    file that cannot be read at first raises `InvalidParameterError`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._reported = ""  # the problem with the file that was logged last
        self._by_id: dict[str, tuple[bytes, Key]] = {}
        self._full_at: dict[str, float] = {}  # when the token bucket of a key is full again
        self._content: bytes | None = None
        self._look_at = 0.0
        self._read()

    # No __len__: a file without keys must not be false, as if no keys were needed.

    def count(self) -> int:
        """Return how many keys are valid now."""
        return sum(not key.expired() for _, key in self._by_id.values())

    def check(
        self, header: str | None, scope: Scope | None = None, cascade: str | None = None
    ) -> Key:
        """Return the key in an Authorization header, and count a request of it.

        Raises `Refusal`: 401 if there is no valid key, 429 if it sends more requests than it may,
        403 if it lacks the scope or may not use the cascade.
        """
        key = self.identify(header)
        if key.rate is not None:
            self._count_request(key, key.rate)
        if scope is not None and not key.may(scope):
            have = ", ".join(key.scopes)
            raise _refused(403, f"this needs a key with the scope {scope}; yours has {have}")
        if cascade is not None and key.cascades and cascade not in key.cascades:
            have = ", ".join(key.cascades)
            raise _refused(403, f"the key {key.id} may use no other cascade than {have}")
        return key

    def identify(self, header: str | None) -> Key:
        """Return the key in an Authorization header, whatever it may do; 401 if not valid."""
        if time.monotonic() >= self._look_at:
            self._look()
        if not header:
            raise _refused(401, "send a key: Authorization: Bearer sw_…")
        if not header.startswith(_USUAL):
            header = _tidied(header)
        id_, _, secret = header[len(_USUAL) :].partition("_")
        expected, key = self._by_id.get(id_, _NOBODY)
        given = sha256(secret.encode("utf-8", "replace")).digest()
        if not compare_digest(given, expected) or key is None:
            raise _refused(401, "the key is not valid: mistyped, revoked, or of another service")
        if key.expires is not None and key.expired():
            raise _refused(401, f"the key {key.id} has expired")
        return key

    def _count_request(self, key: Key, rate: float) -> None:
        """Take a token from the bucket, which holds those of one second, but at least one."""
        now = time.monotonic()
        full_at = max(self._full_at.get(key.id, now), now) + 1 / rate
        wait = full_at - now - max(1.0, 1 / rate)
        if wait > 1e-6:  # more than a rounding error
            raise Refusal(
                429,
                "too_many_requests",
                f"the key {key.id} may send {rate:g} requests a second; try again later",
                retry_after=math.ceil(wait),
            )
        self._full_at[key.id] = full_at

    def _look(self) -> None:
        try:
            self._read()
        except InvalidParameterError as error:
            if self._reported != str(error):
                self._reported = str(error)
                words = "the keys cannot be read again; those read before stay valid"
                trouble(words, reason=self._reported)

    def _read(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY
        content = _content(self._path)
        if content != self._content:
            keys = _parsed(self._path, content)
            self._by_id = {key.id: (bytes.fromhex(key.hash[7:]), key) for key in keys}
            self._full_at = {id_: at for id_, at in self._full_at.items() if id_ in self._by_id}
            self._content = content
        self._reported = ""


# What an unknown id is compared with: it takes as long as a wrong secret.
_NOBODY: tuple[bytes, Key | None] = (sha256(secrets.token_bytes(32)).digest(), None)


def _refused(status: int, message: str) -> Refusal:
    return Refusal(status, "unauthorized" if status == 401 else "forbidden", message)


def _tidied(header: str) -> str:
    """Return a header as it usually is, or one that is not valid."""
    scheme, _, text = header.partition(" ")
    tidy = f"Bearer {text.strip()}" if scheme.lower() == "bearer" else ""
    return tidy if tidy.startswith(_USUAL) else ""


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
    """Make a key and add it to a file; return what the file keeps, and the key itself."""
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise InvalidParameterError("a key's name has 1 to 100 characters that can be printed")
    given = set(scopes)
    if not given or not given.issubset(SCOPES):
        raise InvalidParameterError(f"a key needs one or more of the scopes {', '.join(SCOPES)}")
    if rate is not None and not 0 < rate < math.inf:
        raise InvalidParameterError(f"the rate is {rate:g}: must be above 0 requests a second")
    try:
        names = msgspec.convert(tuple(dict.fromkeys(cascades)), tuple[Name, ...])
    except msgspec.ValidationError:
        raise InvalidParameterError("no cascade can have that name") from None
    now = time.time()
    if expires is not None and not now < expires < math.inf:
        raise InvalidParameterError("the key would have expired before its first use")
    with _locked(path):
        keys = read_keys(path) if path.exists() else []
        taken = {key.id for key in keys}
        id_ = next(one for one in iter(lambda: secrets.token_hex(4), None) if one not in taken)
        secret = secrets.token_urlsafe(32)
        digest = f"sha256:{sha256(secret.encode()).hexdigest()}"
        wanted: tuple[Scope, ...] = tuple(one for one in SCOPES if one in given)
        key = Key(id_, name, wanted, digest, float(int(now)), expires, rate, names)
        _write(path, [*keys, key])
    return key, f"{_START}{id_}_{secret}"


def revoke_key(path: Path, id_: str) -> Key:
    """Remove a key from a file; a running service refuses it within a second or two."""
    with _locked(path):
        keys = read_keys(path)
        found = next((key for key in keys if key.id == id_), None)
        if found is None:
            # Never repeated: somebody may have typed the key itself.
            ids = [key.id for key in keys if key.name == id_]
            raise InvalidParameterError(
                f"that is a name; the id is {' or '.join(ids)}: stopwise keys revoke {ids[0]}"
                if ids
                else f"{path} has no key with that id; 'stopwise keys list' shows the ids"
            )
        _write(path, [key for key in keys if key.id != id_])
    return found


def _write(path: Path, keys: list[Key]) -> None:
    """Replace the file in one step; only its owner can read it."""
    path = path.resolve()  # of a link, the file is replaced and not the link
    handle, beside = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(msgspec.json.encode(key) + b"\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Let one process at a time change the file; then make the change durable."""
    if os.name != "posix":
        yield
        return
    import fcntl

    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
        yield
        os.fsync(folder)  # so that the new name survives a power cut
    finally:
        os.close(folder)
