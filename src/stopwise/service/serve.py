"""Run a service as a process: listen, drain, stop without losing requests in flight."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import TYPE_CHECKING, Any

from stopwise.errors import InvalidParameterError, MissingPackageError, StopwiseError
from stopwise.service.http.keys import Keys
from stopwise.service.server_log import LOG, start_server_log
from stopwise.service.settings import Settings, shown_store
from stopwise.version import __version__

if TYPE_CHECKING:
    from granian.server.embed import Server

    from stopwise.service.http.app import App
    from stopwise.service.service import Service

PACKAGES = ("granian", "jinja2", "prometheus_client")
# Milliseconds for the head of a request, and for an idle connection: longer than pools of clients
# keep theirs (mostly 5 to 60 s), so that no request is sent into a connection that is being closed.
HEAD_TIMEOUT = 75_000
LAST_ANSWERS = 1.0  # seconds to send the answers of requests that were in flight at the end
HEAD_BUFFER = 32_768  # bytes; with max_connections it bounds the memory that strangers can use


def serve(
    settings: Settings,
    report: Callable[[str], object],
    app: "Callable[[Service, Settings], App] | None" = None,
) -> None:
    """Serve until SIGTERM or SIGINT; report where it listens. ``app`` is an `App` with more routes.

    It raises `InvalidParameterError` (a host that others can reach, and no keys), `StoreError` or
    `CorruptLogError` (the log), `OSError` (the port).
    """
    check_keys(settings)
    for name in PACKAGES:
        if find_spec(name) is None:
            raise MissingPackageError.of("serving", name, "service")
    if settings.traces is not None and find_spec("opentelemetry") is None:
        raise MissingPackageError.of("tracing", "opentelemetry-sdk", "otel")
    start_server_log(settings.log_level)
    before = os.umask(0o077)  # only their owner can read the files: a log holds contexts
    try:
        address = free_address(settings)
        try:
            from uvloop import run  # where there is one
        except ImportError:
            from asyncio import run
        run(_serve(settings, address, report, app))
    finally:
        os.umask(before)


def check_keys(settings: Settings) -> None:
    """Refuse to let anybody in from elsewhere without a key."""
    keys = None if settings.keys is None else Keys(settings.keys)
    own = all(ip_address(place[4][0]).is_loopback for place in _places(settings.host, 0))
    if own or (keys is not None and keys.count()):
        return
    fault = "without a key" if keys is None else f"and {settings.keys} has no key that is valid"
    raise InvalidParameterError(
        f"others can reach {settings.host} {fault}: create one with 'stopwise keys add', then use "
        "--keys FILE (or listen on 127.0.0.1)"
    )


def _places(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidParameterError(f"host is {host!r}: no address is known for it") from error


def free_address(settings: Settings) -> tuple[str, int]:
    """Return the address and port to listen on, or raise `OSError`: the port is not free."""
    family, kind, protocol, _, address = _places(settings.host, settings.port)[0]
    with socket.socket(family, kind, protocol) as probe:
        if sys.platform != "win32":  # there it would let two listen on one port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)  # another server may be bound to it and let others bind, too
        except OSError as error:
            raise OSError(
                f"cannot listen on {settings.host}, port {settings.port}: "
                f"{(error.strerror or str(error)).lower()} (another port: --port, STOPWISE_PORT)"
            ) from error
        return probe.getsockname()[:2]


async def _serve(
    settings: Settings,
    address: tuple[str, int],
    report: Callable[[str], object],
    make_app: "Callable[[Service, Settings], App] | None",
) -> None:
    from stopwise.service.persistence.stores.opening import open_store
    from stopwise.service.service import Service

    service = Service(open_store(settings.store), settings)
    app = (make_app or app_with_dashboard)(service, settings)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (SIGTERM, SIGINT):
        with suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, asked.set)
    keys = app.access.keys
    if keys is not None and sys.platform != "win32":
        loop.add_signal_handler(Signals.SIGHUP, keys.reload)

    def listening(url: str) -> None:
        needs, count = ("no key", None) if keys is None else ("a key", keys.count())
        report(f"Stopwise listens on {url} ({needs} is needed); Ctrl-C stops it.")
        fields = {"url": url, "keys": count, "store": shown_store(settings.store)}
        LOG.info("listens", extra=fields | {"version": __version__})

    await run_service(service, address, asked, listening, app)
    LOG.info("stopped", extra={"position": service.state.position})


async def run_service(
    service: "Service",
    address: tuple[str, int],
    asked: asyncio.Event,
    listening: Callable[[str], object],
    app: "App | None" = None,
) -> None:
    """Serve until ``asked`` is set, or until the service cannot go on.

    Once asked, `/readyz` fails at once, while requests are answered for ``drain`` seconds more or
    until asked again; then the listener closes, requests in flight are finished, and a snapshot
    is written.
    """
    app = app or app_with_dashboard(service, service.settings)
    try:
        await service.start()
    except BaseException:
        await app.stopped()
        raise
    starting: asyncio.Task[None] | None = None
    try:
        server = _server(service.settings, address, app)
        serving = asyncio.create_task(server.serve())
        try:
            await _accepting(address, serving)
            scheme = "http" if service.settings.tls_cert is None else "https"
            host = service.settings.host
            listening(f"{scheme}://{f'[{host}]' if ':' in host else host}:{address[1]}")
            starting = asyncio.create_task(_started(app, service))
            asking = asyncio.create_task(asked.wait())
            ends = {service.failed, asking, serving}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            service.draining = True
            as_asked = asked.is_set()
            drain = service.settings.drain
            if as_asked and drain:
                LOG.info("draining", extra={"seconds": drain})
                asked.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), drain)
            asking.cancel()
        finally:
            server.stop()
            await asyncio.wait([serving], timeout=service.settings.stop_timeout)
            await app.abort()  # before anything closes that requests in flight use
            await asyncio.wait([serving], timeout=LAST_ANSWERS)
            await app.stopped()
    finally:
        if starting is not None:
            starting.cancel()
        await service.stop()
        if app.traces is not None:
            await asyncio.to_thread(app.traces.close)
    if service.failed.done():
        error = service.failed.result()
        if isinstance(error, StopwiseError):
            raise error
        raise StopwiseError(f"a defect has ended the service; its log has the details: {error!r}")
    if not as_asked:
        serving.result()
        raise StopwiseError("the HTTP server has ended by itself; its log may have the reason")


def app_with_dashboard(service: "Service", settings: Settings) -> "App":
    """Return the application of a service: the API and the dashboard."""
    from stopwise.service.dashboard.pages import Pages
    from stopwise.service.http.app import App

    app = App(service, settings)
    Pages(app)
    return app


async def _started(app: "App", service: "Service") -> None:
    try:
        await app.started()
    except Exception as error:
        if not service.failed.done():
            service.failed.set_result(error)


def _server(settings: Settings, address: tuple[str, int], app: "App") -> "Server":
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    from stopwise.service.http.asgi import AsgiAdapter

    pause = app.reader_pause
    return Server(
        app if pause is None else AsgiAdapter(app, pause),
        address=address[0],
        port=address[1],
        interface=Interfaces.RSGI if pause is None else Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,  # connections that the system holds until they are accepted
        backpressure=settings.max_connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_TIMEOUT, max_buffer_size=HEAD_BUFFER),
        log_enabled=False,  # start_server_log has configured its logger
        ssl_cert=None if settings.tls_cert is None else Path(settings.tls_cert),
        ssl_key=None if settings.tls_key is None else Path(settings.tls_key),
        ssl_protocol_min=SSLProtocols.tls12,
    )


async def _accepting(address: tuple[str, int], serving: "asyncio.Task[Any]") -> None:
    """Wait until connections are accepted."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, address[1])
            writer.close()
            return
        await asyncio.sleep(0.01)
    await serving  # raises why it could not start
