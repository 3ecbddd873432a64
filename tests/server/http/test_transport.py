"""The transport under the client: httpx's errors, and a body as it arrives, over httpcore's public pool."""

import inspect
from collections.abc import Iterator

import httpcore
import httpx
import pytest

from pytest_specprobe.server.http import deadline

ERRORS = [
    kind
    for kind in vars(httpcore).values()
    if inspect.isclass(kind) and issubclass(kind, Exception) and kind is not httpcore.ConnectionNotAvailable
]


class Broken(httpcore.ConnectionPool):
    """A pool whose connections fail with a given error, before the answer or in its body."""

    def __init__(self, error: Exception, *, in_body: bool) -> None:
        super().__init__()
        self._error = error
        self._in_body = in_body

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        if self._in_body:
            return httpcore.Response(200, content=self._body())
        raise self._error

    def _body(self) -> Iterator[bytes]:
        yield b"half"
        raise self._error


@pytest.mark.parametrize("in_body", [False, True], ids=["answer", "body"])
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_each_error_is_httpx_s_of_the_same_name(
    kind: type[Exception], in_body: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpcore, "ConnectionPool", lambda **_: Broken(kind("why"), in_body=in_body))
    with httpx.Client(transport=deadline.transport()) as client, pytest.raises(httpx.HTTPError) as caught:
        client.get("http://127.0.0.1/")
    assert type(caught.value) is getattr(httpx, kind.__name__)
    assert str(caught.value) == "why"


def test_no_private_part_of_httpx_is_used() -> None:
    source = inspect.getsource(deadline)
    assert "noqa: SLF001" not in source
    assert "httpx._" not in source
