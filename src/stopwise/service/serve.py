"""Run the service as a process: listen, drain and stop gracefully."""

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
from stopwise.service.settings import Settings, redacted_store
from stopwise.version import __version__

if TYPE_CHECKING:
    from granian.server.embed import Server

    from stopwise.service.http.app import App
    from stopwise.service.service import Service

PACKAGES = ("granian", "jinja2", "prometheus_client")
# Milliseconds for the head of a request, and for an idle connection. Client pools close idle
# connections after 5 to 60 s, so the client closes first and no request meets a closing connection.
HEAD_TIMEOUT = 75_000
LAST_RESPONSES = 1.0  # seconds to send the responses to cancelled requests
# Bytes. With max_connections, it bounds the memory of unauthenticated connections.
HEAD_BUFFER = 32_768


def serve(
    settings: Settings,
    report: Callable[[str], object],
    app: "Callable[[Service, Settings], App] | None" = None,
) -> None:
    """Serve until SIGTERM or SIGINT; pass the URL to ``report``.

    ``app`` creates the application: by default, the API with the dashboard.

    Raises `InvalidParameterError` if other machines can connect but no API key is valid,
    `StoreError` or `CorruptLogError` if the log cannot be used, and `OSError` if listening fails.
    """
    check_keys(settings)
    for name in PACKAGES:
        if find_spec(name) is None:
            raise MissingPackageError.of("serving", name, "service")
    if settings.traces is not None and find_spec("opentelemetry") is None:
        raise MissingPackageError.of("tracing", "opentelemetry-sdk", "otel")
    start_server_log(settings.log_level)
    old_umask = os.umask(0o077)  # only the owner can read new files: a log contains contexts
    try:
        address = free_address(settings)
        try:
            from uvloop import run  # not available on Windows
        except ImportError:
            from asyncio import run
        run(_serve(settings, address, report, app))
    finally:
        os.umask(old_umask)


def check_keys(settings: Settings) -> None:
    """Reject a host that other machines can reach, unless there is a valid key."""
    keys = None if settings.keys is None else Keys(settings.keys)
    addresses = [info[4][0] for info in _resolve(settings.host, 0)]
    if all(ip_address(address).is_loopback for address in addresses):
        return
    if keys is None:
        raise InvalidParameterError(
            f"host {settings.host} accepts connections from other machines, which requires API "
            "keys; create one with 'stopwise keys add' and pass --keys FILE, or use --host "
            "127.0.0.1"
        )
    if not keys.count():
        raise InvalidParameterError(
            f"host {settings.host} accepts connections from other machines, but {settings.keys} "
            f"has no valid key; create one with 'stopwise keys add --keys {settings.keys}'"
        )


def _resolve(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidParameterError(f"cannot resolve host {host!r}") from error


def free_address(settings: Settings) -> tuple[str, int]:
    """Return the address and port to listen on; raise `OSError` if listening fails."""
    family, kind, protocol, _, address = _resolve(settings.host, settings.port)[0]
    with socket.socket(family, kind, protocol) as probe:
        if sys.platform != "win32":  # on Windows, it lets two processes share a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)  # `bind` alone succeeds if the other server allows sharing
        except OSError as error:
            raise OSError(
                f"cannot listen on {settings.host}, port {settings.port}: "
                f"{(error.strerror or str(error)).lower()}; choose another port with --port or "
                "STOPWISE_PORT"
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
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (SIGTERM, SIGINT):
        with suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stop_requested.set)
    keys = app.access.keys
    if keys is not None and sys.platform != "win32":
        loop.add_signal_handler(Signals.SIGHUP, keys.reload)

    def listening(url: str) -> None:
        required = "no API key required" if keys is None else "API key required"
        report(f"Listening on {url} ({required}). Press Ctrl-C to stop.")
        fields = {
            "url": url,
            "keys": None if keys is None else keys.count(),
            "store": redacted_store(settings.store),
            "version": __version__,
        }
        LOG.info("listening", extra=fields)

    await run_service(service, address, stop_requested, listening, app)
    LOG.info("stopped", extra={"position": service.state.position})


async def run_service(
    service: "Service",
    address: tuple[str, int],
    stop_requested: asyncio.Event,
    listening: Callable[[str], object],
    app: "App | None" = None,
) -> None:
    """Serve until ``stop_requested`` is set or a fatal error occurs.

    After the first stop signal, `/readyz` fails at once, and other requests are served for another
    ``drain`` seconds or until the second signal. Then the listener closes, requests in flight
    finish, and a snapshot is written.
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
            stopping = asyncio.create_task(stop_requested.wait())
            await asyncio.wait(
                {service.failed, stopping, serving}, return_when=asyncio.FIRST_COMPLETED
            )
            service.draining = True
            requested = stop_requested.is_set()
            drain = service.settings.drain
            if requested and drain:
                LOG.info("draining", extra={"seconds": drain})
                stop_requested.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop_requested.wait(), drain)
            stopping.cancel()
        finally:
            server.stop()
            await asyncio.wait([serving], timeout=service.settings.stop_timeout)
            await app.abort()  # first, because requests in flight use what is closed next
            await asyncio.wait([serving], timeout=LAST_RESPONSES)
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
        raise StopwiseError(f"fatal internal error: {error!r}; see the server log")
    if not requested:
        serving.result()
        raise StopwiseError("the HTTP server stopped unexpectedly; see the server log")


def app_with_dashboard(service: "Service", settings: Settings) -> "App":
    """Return the API and the dashboard of a service."""
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
        backlog=2048,  # connections waiting to be accepted
        backpressure=settings.max_connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_TIMEOUT, max_buffer_size=HEAD_BUFFER),
        log_enabled=False,  # start_server_log has configured its logger
        ssl_cert=None if settings.tls_cert is None else Path(settings.tls_cert),
        ssl_key=None if settings.tls_key is None else Path(settings.tls_key),
        ssl_protocol_min=SSLProtocols.tls12,
    )


async def _accepting(address: tuple[str, int], serving: "asyncio.Task[Any]") -> None:
    """Wait until the server accepts connections."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, address[1])
            writer.close()
            return
        await asyncio.sleep(0.01)
    await serving  # raises the error that prevented the start
