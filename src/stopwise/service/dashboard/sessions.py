"""Who is signed in: sessions in memory, each begun with an API key.

A browser gets a random token in a cookie that no script can read and no other site can send. The
key stays here, so that it can be checked again with every request: one that is revoked or expires
ends its sessions, and one whose scopes change changes what they may do.
"""

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest

from stopwise.service.keys import Key, Keys
from stopwise.service.refusals import Refusal

LASTING = 12 * 3_600.0  # seconds, from signing in: a working day
MOST = 1_000  # sessions; beyond, the oldest end
MOST_OF_ONE = 20  # with one key; whoever has it cannot end those of others


class Session:
    """One browser that is signed in; shows no secret when it is printed.

    Attributes
    ----------
    token : str
        Is in every form of its pages, and so proves that a form is one of ours.
    ends : float
        When, by the clock of `Sessions`.
    key_id : str
        Of the key it was begun with.
    """

    def __init__(self, header: str, ends: float, key_id: str = "") -> None:
        self.token = secrets.token_urlsafe(24)
        self.ends = ends
        self.key_id = key_id
        self._header = header

    def key(self, keys: Keys) -> Key:
        """Return the key it was begun with, as it is now; a `Refusal` if it is no more."""
        return keys.check(self._header)

    def owns(self, token: str) -> bool:
        """Whether a form came from a page of this session."""
        return compare_digest(self.token.encode(), token.encode())


class Sessions:
    """Everybody who is signed in.

    Parameters
    ----------
    keys : Keys
        That may be used to sign in.
    clock : callable, optional
        Tells the seconds.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from stopwise.service.keys import add_key
    >>> with TemporaryDirectory() as folder:
    ...     _, text = add_key(Path(folder, "keys.jsonl"), "laptop", ["decide"])
    ...     sessions = Sessions(Keys(Path(folder, "keys.jsonl")))
    >>> cookie = sessions.begin(text)
    >>> session, key = sessions.find(cookie)
    >>> key.name, sessions.find("guessed")
    ('laptop', None)
    """

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._by_digest: dict[bytes, Session] = {}  # oldest first

    def begin(self, key: str) -> str:
        """Sign in with a key; return what goes into the cookie.

        Raises
        ------
        Refusal
            If the key is not valid.
        """
        header = f"Bearer {key.strip().removeprefix('Bearer ').strip()}"
        id_ = self._keys.check(header).id
        now = self._clock()
        own = [digest for digest, session in self._by_digest.items() if session.key_id == id_]
        for digest in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
            del self._by_digest[digest]
        for digest, session in list(self._by_digest.items()):
            if session.ends > now and len(self._by_digest) < MOST:
                break  # all after it are younger
            del self._by_digest[digest]
        cookie = secrets.token_urlsafe(32)
        self._by_digest[_digest(cookie)] = Session(header, now + LASTING, id_)
        return cookie

    def find(self, cookie: str | None) -> tuple[Session, Key] | None:
        """Return the session of a cookie, and its key as it is now; None if it has ended."""
        if not cookie:
            return None
        session = self._by_digest.get(_digest(cookie))
        if session is None:
            return None
        try:
            if session.ends <= self._clock():
                raise Refusal(401, "unauthorized", "the session is over")
            return session, session.key(self._keys)
        except Refusal:
            self.end(cookie)
            return None

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        if cookie:
            self._by_digest.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    """Return what a cookie is found by; looking it up tells nothing about those there are."""
    return sha256(cookie.encode("utf-8", "surrogatepass")).digest()
