"""Runs a service as a process: listens, says where, stops without losing what is in flight."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import contextmanager
from importlib.util import find_spec
from ipaddress import ip_address
from signal import SIGINT, SIGTERM, signal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.service.journal import event, start_journal
from stopwise.service.keys import Keys
from stopwise.service.settings import Settings, shown_store
from stopwise.version import __version__

if TYPE_CHECKING:
    from stopwise.service.service import Service

Asgi: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

EXTRA = "service"  # what to install with Stopwise for this
PACKAGES = ("uvicorn", "httptools", "litestar", "prometheus_client")
# Seconds that an idle connection is kept. Longer than pools of clients keep theirs (mostly 5 to
# 60), so that it is they who close: no request is sent into a connection that is being closed.
KEEP_ALIVE = 75
LOOK_EVERY = 0.2  # seconds, whether it is ready
SOON = 1.0  # seconds: what is ready by then need not be announced
BACKLOG = 2048  # connections that the system holds until they are accepted


def serve(settings: Settings, say: Callable[[str], object] | None = None) -> None:
    """Serve until told to stop (SIGTERM, or SIGINT as Ctrl-C sends).

    Parameters
    ----------
    settings : Settings
        How.
    say : callable, optional
        Is told, for people, where it listens and when it is ready; otherwise stdout is.

    Raises
    ------
    InvalidParameterError
        If the settings contradict each other: above all, a host others can reach and no keys.
    MissingPackageError
        If a package that the service needs is not installed.
    StoreError, CorruptLogError
        If the log cannot be opened.
    OSError
        If the port is taken, or the address is not one of this machine.
    """
    keys = checked_keys(settings)
    need_packages()
    start_journal(settings)
    with _files_of_its_own(), listening(settings) as door:
        # These take seconds: what can be refused has been by now.
        from stopwise.service.http.app import make_app
        from stopwise.service.service import Service
        from stopwise.service.store.opening import open_store

        service = Service(open_store(settings.store), settings)
        _run(service, make_app(service, settings), settings, door, keys, say or _say)


def checked_keys(settings: Settings) -> Keys | None:
    """Return the keys asked for, None if none are, and refuse what would let anybody in.

    Examples
    --------
    >>> checked_keys(Settings()) is None
    True
    >>> checked_keys(Settings(host="0.0.0.0"))
    Traceback (most recent call last):
    stopwise.errors.InvalidParameterError: others can reach 0.0.0.0, and nobody would be asked ...
    """
    keys = None if settings.keys is None else Keys(settings.keys)
    if is_loopback(settings.host):
        return keys
    if keys is None:
        raise InvalidParameterError(
            f"others can reach {settings.host}, and nobody would be asked for a key: make one with "
            "'stopwise keys add', then say --keys FILE (or listen on 127.0.0.1)"
        )
    if not keys.count():
        raise InvalidParameterError(
            f"others can reach {settings.host}, and {settings.keys} has no key that is valid: make "
            "one with 'stopwise keys add' (or listen on 127.0.0.1)"
        )
    return keys


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host. A name counts as what it resolves to.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    return all(ip_address(place[4][0]).is_loopback for place in _places(host, 0))


def _places(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidParameterError(f"host is {host!r}: no address is known for it") from error


@contextmanager
def listening(settings: Settings) -> Generator[socket.socket, None, None]:
    """Take the port, so that whether it is free is known before anything else begins.

    Raises
    ------
    OSError
        If it is not free or cannot be had; the message says what to do.
    """
    family, kind, protocol, _, address = _places(settings.host, settings.port)[0]
    door = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two listen on one port
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(address)
        except OSError as error:
            raise OSError(
                f"cannot listen on {settings.host}, port {settings.port}: "
                f"{(error.strerror or str(error)).lower()} (another port: --port, "
                "STOPWISE_PORT)"
            ) from error
        yield door
    finally:
        door.close()


@contextmanager
def _files_of_its_own() -> Generator[None, None, None]:
    """Let files made meanwhile be readable by their owner alone: a log holds contexts."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def need_packages() -> None:
    """Raise `MissingPackageError` where the service cannot run, naming what to install."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise MissingPackageError(f"serving needs {name}: pip install 'stopwise[{EXTRA}]'")


def _run(
    service: "Service",
    app: Asgi,
    settings: Settings,
    door: socket.socket,
    keys: Keys | None,
    say: Callable[[str], object],
) -> None:
    import uvicorn

    from stopwise.service.http.protocol import Protocol

    logger = logging.getLogger("uvicorn.error")
    where = _url(settings.host, door.getsockname()[1])
    remembered = _Remembered(app)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # Why it could not start is raised, and said once.
            logger.setLevel(logging.CRITICAL)
            await super().startup(sockets)
            logger.setLevel(logging.WARNING)
            if self.started:
                asked = "keys are asked for" if keys is not None else "no keys are asked for"
                say(f"Stopwise listens on {where} ({asked}); Ctrl-C stops it.")
                event(
                    "listens",
                    url=where,
                    keys=None if keys is None else keys.count(),
                    store=shown_store(settings.store),
                    version=__version__,
                )
                self.telling = asyncio.create_task(_tell_when_ready(service, say))

    config = uvicorn.Config(
        remembered,
        http=Protocol,
        loop="auto",  # uvloop, where there is one
        ws="none",
        lifespan="on",
        log_config=None,  # start_journal has seen to it
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who a proxy says is asking
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=settings.stop_timeout,  # pyright: ignore[reportArgumentType] (it is waited for, and may be a fraction)
    )
    # A server that was told to stop and did has not failed: uvicorn sends itself the signal again
    # once it has finished, and by default that would kill.
    before = {number: signal(number, _ignored) for number in (SIGTERM, SIGINT)}
    try:
        Server(config).run(sockets=[door])
    except SystemExit:
        if remembered.failure is None:
            raise
    finally:
        for number, handler in before.items():
            signal(number, handler)
    if remembered.failure is not None:
        raise remembered.failure
    event("stopped", position=service.state.position)


async def _tell_when_ready(service: "Service", say: Callable[[str], object]) -> None:
    """Say that it takes a while, if it does, and when it is over."""
    waited, told = 0.0, False
    while not service.ready:
        if service.recovering.startswith("failed"):
            return  # the log says why
        if waited >= SOON and not told:
            told = True
            say(f"Starting ({service.recovering}) …")
            event("starting", reason=service.recovering)
        await asyncio.sleep(LOOK_EVERY)
        waited += LOOK_EVERY
    say("Ready.")


class _Remembered:
    """Passes everything on, and remembers why starting or stopping failed.

    A server logs that with a traceback; whoever started it needs a sentence.
    """

    def __init__(self, app: Asgi) -> None:
        self._app = app
        self.failure: BaseException | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"].endswith(".failed"):
                message["message"] = ""
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except BaseException as error:
            self.failure = _innermost(error)
            raise


def _innermost(error: BaseException) -> BaseException:
    """Return what went wrong first, out of the groups in which tasks wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _ignored(number: int, frame: object) -> None:
    """Do nothing."""


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
