"""An HTTP client for SGLang's own API, with bounded answers."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from pytest_specprobe.measure.records import Generation, Prompt
from pytest_specprobe.server.info import ServerInfo


class Client:
    """A client of one server: loopback unless told, no redirects, every answer bounded in size and time.

    Safe to use from several threads at once.
    """

    def __init__(self, url: str, *, api_key: str | None = None, request_timeout_s: float = 600.0) -> None:
        self.url = url.rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    def healthy(self, *, timeout_s: float = 5.0) -> bool:
        """Tell whether ``/health`` answers 200 within ``timeout_s`` seconds; never raises."""
        raise NotImplementedError

    def server_info(self) -> ServerInfo:
        """Return the server's resolved settings (``/server_info``, or ``/get_server_info`` of older SGLang).

        :raises ServerError: if the server cannot be reached or refuses.
        :raises MeasurementError: if the answer is not what SGLang sends.
        """
        raise NotImplementedError

    def version(self) -> str:
        """Return SGLang's version."""
        return self.server_info().version

    def flush(self, *, patience_s: float = 30.0) -> None:
        """Empty the prefix cache and reset SGLang's own totals; retried while requests run.

        :raises MeasurementError: if the server is still busy after ``patience_s`` seconds.
        """
        raise NotImplementedError

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        ignore_eos: bool,
        temperature: float = 0.0,
        sampling: Mapping[str, object] | None = None,
    ) -> Generation:
        """Run one request through the streaming ``/generate`` and time every arrival.

        :raises ServerError: if the server dies, hangs past the deadline, or refuses.
        :raises MeasurementError: if a required field is missing or contradicts the tokens that arrived.
        """
        raise NotImplementedError

    def tokenize_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Return prompt token ids: the server's own chat template and tokenizer, generation prompt added.

        :raises ServerError: if the server cannot do it (the fix says why: no chat template, or an older SGLang).
        """
        raise NotImplementedError
