"""One deadline for a whole HTTP exchange.

HTTP clients bound each read; a server that drips a byte at a time, or header after header, then never ends. Here
every read of the socket gets what is left of the exchange's deadline and no more.

The key of a server is put in here too, at the socket: what is above (httpx, httpcore, h11) keeps its headers in local
variables and sees a placeholder.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpcore
import httpx

from pytest_specprobe.secret import Secret

_local = threading.local()
_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Bound all network reads of this thread inside the block to ``seconds`` altogether."""
    _local.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _local.until = None


def transport(
    key: Secret | None = None, *, placeholder: str = "", connected: Callable[[], None] = lambda: None
) -> httpx.BaseTransport:
    """Return an httpx transport whose reads obey ``deadline``; it uses no proxy and retries nothing.

    :param key: what goes onto the wire where a request has ``placeholder``, a text that is in no request by chance.
    :param connected: called after each connection is made and before a byte is sent; what it raises ends the request.
    """
    pool = httpcore.ConnectionPool(
        ssl_context=httpx.create_ssl_context(trust_env=False),
        max_connections=None,
        # A kept connection may be closed by the server as the next request goes out, which would fail a pass.
        max_keepalive_connections=0,
        network_backend=_Backend(key, placeholder.encode(), connected),
    )
    return _Transport(pool)


class _Transport(httpx.BaseTransport):
    """httpx over a pool of our own: its own transport takes none from outside, so no network backend either."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        with _as_httpx():
            response = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    url,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    """The body of a response, as it arrives."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    """Raise httpcore's errors as httpx's of the same name, the nearest one that both know."""
    try:
        yield
    except _ERRORS as error:
        names = (kind.__name__ for kind in type(error).__mro__)
        raised = next(kind for name in names if (kind := getattr(httpx, name, None)) is not None)
        raise raised(str(error)) from error


class _Backend(httpcore.SyncBackend):
    def __init__(self, key: Secret | None, placeholder: bytes, connected: Callable[[], None]) -> None:
        super().__init__()
        self._key = key
        self._placeholder = placeholder
        self._connected = connected

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        stream = _Stream(super().connect_tcp(*args, **kwargs), self._key, self._placeholder)
        try:
            self._connected()
        except BaseException:
            stream.close()
            raise
        return stream


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, key: Secret | None, placeholder: bytes) -> None:
        self._inner = inner
        self._key = key
        self._placeholder = placeholder

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        until: float | None = getattr(_local, "until", None)
        if until is not None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise httpcore.ReadTimeout("the deadline has passed")
            timeout = left_s if timeout is None else min(timeout, left_s)
        return self._inner.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._key is None or self._placeholder not in buffer:
            self._inner.write(buffer, timeout)
            return
        socket = self._inner.get_extra_info("socket")
        try:
            socket.settimeout(timeout)
            socket.sendall(buffer.replace(self._placeholder, self._key.reveal().encode()))
        except OSError as error:
            late, what = isinstance(error, TimeoutError), str(error)
        else:
            return
        # Out here it has no cause: the frames of TLS hold what was to be sent.
        raise httpcore.WriteTimeout(what) if late else httpcore.WriteError(what)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, timeout)
        return _Stream(inner, self._key, self._placeholder)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
