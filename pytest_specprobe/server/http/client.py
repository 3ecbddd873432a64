"""An HTTP client for SGLang's own API, with bounded answers."""

import contextlib
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from pytest_specprobe.errors import MeasurementError, ServerError
from pytest_specprobe.measure.checks.losslessness import Best
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.reading import Bounds, Unreadable, parse_json
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.closing import Closing
from pytest_specprobe.server.http.deadline import deadline, transport
from pytest_specprobe.server.http.generation import Arrivals, best_of, gaps_of
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.server.redaction import redact_text
from pytest_specprobe.urls import url_problem

logger = logging.getLogger(__name__)

_ANSWER_LIMIT = 16 << 20  # bytes of one plain answer; /server_info has about 50 KB
_BOUNDS = Bounds(size=_ANSWER_LIMIT)
# A stream repeats all its ids in every chunk unless the server is told otherwise: quadratic, so bounded apart.
_STREAM_LIMIT = 1 << 30
_CHUNK_LIMIT = 16 << 20
_CONNECT_S = 10.0
_PLAIN_S = 30.0
_FLUSH_PAUSE_S = 0.25


class Client(Closing):
    """A client of one server: no redirects, no proxies, every answer bounded in size and time.

    Safe to use from several threads at once.

    :param connected: called after each connection is made and before the key goes over it; raises ServerError where
        another process is at the other end.
    :param request_timeout_s: patience for one whole generation in seconds.
    :param silence_s: patience for the next piece of a streamed answer in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: Secret | None = None,
        connected: Callable[[], None] = lambda: None,
        request_timeout_s: float = 600.0,
        silence_s: float = 120.0,
    ) -> None:
        self.url = checked_url(url, key=api_key)
        self._secrets = (api_key,) if api_key else ()
        self._request_timeout_s = request_timeout_s
        self._silence_s = silence_s
        # What httpx shows and logs as the key; the socket gets the key itself.
        placeholder = secrets.token_hex(16)
        self._http = httpx.Client(
            base_url=self.url,
            # Raw bytes only: a compressed answer could unfold beyond any bound.
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {placeholder}"} if api_key else {}),
            timeout=httpx.Timeout(_PLAIN_S, connect=_CONNECT_S),
            follow_redirects=False,
            trust_env=False,
            transport=transport(api_key, placeholder=placeholder, connected=connected),
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def healthy(self, *, timeout_s: float = 10.0) -> bool:
        """Tell whether ``/health`` answers 200 within ``timeout_s`` seconds; never raises.

        SGLang answers after a token was generated, which takes a second at least.
        """
        with contextlib.suppress(ServerError, MeasurementError):
            status, _ = self._plain("GET", "/health", patience_s=timeout_s)
            return status == 200
        return False

    def server_info(self) -> ServerInfo:
        """Return the server's resolved settings (``/server_info``, or ``/get_server_info`` of older SGLang).

        :raises ServerError: if the server cannot be reached or refuses.
        :raises MeasurementError: if the answer is not what SGLang sends.
        """
        status, body = self._plain("GET", "/server_info")
        if status == 404:
            status, body = self._plain("GET", "/get_server_info")
        return ServerInfo.parse(self._json("/server_info", status, body))

    def version(self) -> str:
        """Return SGLang's version."""
        return self.server_info().version

    def prefilled_tokens(self) -> int | None:
        """Return how many prompt tokens of all clients the server has prefilled since it started, over all ranks.

        Tokens from the prefix cache are not counted. None if it does not say (``/v1/loads`` of newer SGLang).

        :raises ServerError: if the server cannot be reached.
        """
        status, body = self._plain("GET", "/v1/loads")
        if status != 200:
            return None
        ranks = self._object("/v1/loads", status, body).get("loads")
        if not isinstance(ranks, list) or not all(isinstance(rank, dict) for rank in ranks):
            return None
        counts = [rank.get("total_prefill_uncached_tokens") for rank in ranks]
        return sum(counts) if counts and all(type(count) is int for count in counts) else None

    def flush(self, *, patience_s: float = 30.0) -> None:
        """Empty the prefix cache and reset SGLang's own totals; retried while requests run.

        :raises MeasurementError: if the server is still busy after ``patience_s`` seconds.
        """
        deadline = time.monotonic() + patience_s
        while True:
            status, body = self._plain("POST", "/flush_cache")
            if status == 200:
                return
            if status != 400:
                raise self._refused("/flush_cache", status, body)
            if time.monotonic() > deadline:
                raise MeasurementError(
                    f"the server was still busy after {patience_s:.0f} s, so its cache could not be flushed",
                    culprit="machine",
                    fix="make sure that nothing else sends requests to this server",
                )
            time.sleep(_FLUSH_PAUSE_S)

    def set_internal_state(self, key: str, value: int) -> bool:
        """Set one of SGLang's run-time settings; return whether every data-parallel rank took it.

        :raises ServerError: if the server cannot be reached or refuses to be asked.
        :raises MeasurementError: if the answer is not a list of booleans.
        """
        path = "/set_internal_state"
        status, body = self._plain("POST", path, json={"server_args": {key: value}})
        ranks = self._json(path, status, body)
        if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, bool) for rank in ranks):
            raise MeasurementError(
                f"{self.url}{path} did not answer with one boolean per rank: {self._shown(body)}",
                culprit="engine",
                fix="use SGLang 0.5.14 or newer",
            )
        return all(ranks)

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
    ) -> Generation:
        """Run one request through the streaming ``/generate`` and time every arrival.

        :raises ServerError: if the server dies, hangs past its deadline, or refuses.
        :raises MeasurementError: if a required field is missing or contradicts the tokens that arrived.
        """
        body = {
            "input_ids": list(prompt.input_ids),
            "stream": True,
            "sampling_params": {
                "max_new_tokens": max_new_tokens,
                "ignore_eos": ignore_eos,
                "temperature": temperature,
            },
        }
        with self._errors("/generate"), deadline(self._request_timeout_s):
            start_s = time.perf_counter()
            arrivals = Arrivals(prompt, start_s=start_s)
            timeout = httpx.Timeout(self._silence_s, connect=_CONNECT_S)
            with self._http.stream("POST", "/generate", json=body, timeout=timeout) as response:
                if response.status_code != 200:
                    raise self._refused("/generate", response.status_code, self._bounded(response))
                for data in self._events(response):
                    now_s = time.perf_counter()
                    arrivals.add(self._json("/generate", 200, data), now_s=now_s)
        return arrivals.finish()

    def best_tokens(self, input_ids: Sequence[int]) -> Best:
        """Return the target's two best tokens after these, and their gap.

        :raises ServerError: if the server dies or refuses.
        :raises MeasurementError: if the answer holds no log-probabilities.
        """
        body = {
            "input_ids": list(input_ids),
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True},
            "return_logprob": True,
            "top_logprobs_num": 2,
        }
        status, answer = self._plain("POST", "/generate", json=body, patience_s=self._silence_s)
        return best_of(self._json("/generate", status, answer))

    def gaps_along(self, input_ids: Sequence[int], output_ids: Sequence[int]) -> tuple[float, ...]:
        """Return how far the log-probability of each output token is below the best one's there; 0 if it is the best.

        One prefill of both: nothing is drafted.

        :raises ServerError: if the server dies or refuses.
        :raises MeasurementError: if the answer holds no log-probabilities.
        """
        body = {
            "input_ids": [*input_ids, *output_ids],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True},
            "return_logprob": True,
            "logprob_start_len": len(input_ids) - 1,
            "top_logprobs_num": 1,
        }
        status, answer = self._plain("POST", "/generate", json=body, patience_s=self._silence_s)
        return gaps_of(self._json("/generate", status, answer), output_ids)

    def tokenize_chat(
        self, messages: Sequence[Mapping[str, str]], *, thinking: bool | None = None
    ) -> tuple[int, ...]:
        """Return prompt token ids: the server's own chat template and tokenizer, generation prompt added.

        :param thinking: told to the template by both names in use; None leaves it to the template.
        :raises ServerError: if the server cannot do it (no chat template, or no tokenizer).
        """
        body: dict[str, Any] = {"messages": [dict(message) for message in messages]}
        if thinking is not None:
            body["chat_template_kwargs"] = {"thinking": thinking, "enable_thinking": thinking}
        status, answer = self._plain("POST", "/v1/tokenize", json=body)
        if status == 500:
            raise ServerError(
                f"the server failed to tokenize chat messages (HTTP 500: {self._shown(answer)})",
                culprit="target",
                fix="if its log says that an integer exceeds 64 bits, give the target's tokenizer_config.json a "
                "model_max_length: SGLang answers with that number, and without one it is 1e30",
            )
        if status in {400, 404, 422}:
            raise ServerError(
                f"the server cannot render chat messages (HTTP {status}: {self._shown(answer)})",
                culprit="target",
                fix="give the target's tokenizer a chat template, or use a workload of plain text",
            )
        tokens = self._object("/v1/tokenize", status, answer).get("tokens")
        if not isinstance(tokens, list) or not tokens or not all(type(t) is int and t >= 0 for t in tokens):
            raise MeasurementError(
                "/v1/tokenize did not answer with token ids", culprit="engine", fix="use SGLang 0.5.12 or newer"
            )
        return tuple(tokens)

    def _plain(self, method: str, path: str, *, json: Any = None, patience_s: float = _PLAIN_S) -> tuple[int, bytes]:
        with self._errors(path), deadline(patience_s):
            timeout = httpx.Timeout(patience_s, connect=min(patience_s, _CONNECT_S))
            with self._http.stream(method, path, json=json, timeout=timeout) as response:
                return response.status_code, self._bounded(response)

    def _bounded(self, response: httpx.Response) -> bytes:
        body = bytearray()
        for piece in response.iter_raw():
            body += piece
            self._guard(response, len(body), _ANSWER_LIMIT)
        return bytes(body)

    def _events(self, response: httpx.Response) -> Iterator[bytes]:
        """Yield the data of each server-sent event; the stream must end with ``[DONE]``."""
        waiting, total, done = b"", 0, False
        # Read to its very end: an answer left early is put away by the finalizers of generators, and a Ctrl-C
        # that arrives inside a finalizer is lost.
        for piece in response.iter_raw():
            total += len(piece)
            self._guard(response, total, _STREAM_LIMIT)
            *lines, waiting = (waiting + piece).split(b"\n")
            self._guard(response, len(waiting), _CHUNK_LIMIT)
            for line in lines:
                data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
                done = done or data == b"[DONE]"
                if data and not done:
                    yield data
        if not done:
            raise self._lost("/generate", "the answer ended early")

    def _guard(self, response: httpx.Response, size: int, limit: int) -> None:
        if size > limit:
            raise self._lost(response.request.url.path, f"the answer is larger than {limit >> 20} MiB")

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise self._lost(path, f"no answer in time ({type(error).__name__})") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self._lost(path, f"{type(error).__name__}: {error}") from error

    def _lost(self, path: str, what: str) -> ServerError:
        return ServerError(
            f"{self.url}{path}: {redact_text(what, secrets=self._secrets)}",
            culprit="machine",
            fix="look at the server's log; a server that died or hangs says why there",
        )

    def _refused(self, path: str, status: int, body: bytes) -> ServerError:
        if status in {401, 403}:
            return ServerError(
                f"{self.url}{path}: the server refuses the API key (HTTP {status})",
                culprit="harness",
                fix="set SPECPROBE_API_KEY to the key that the server was started with",
            )
        if 300 <= status < 400:
            return ServerError(
                f"{self.url}{path}: the server redirects elsewhere (HTTP {status}), which is not followed",
                culprit="harness",
                fix="name the server's own URL",
            )
        return ServerError(
            f"{self.url}{path}: HTTP {status}: {self._shown(body)}",
            culprit="engine",
            fix="look at the server's log",
        )

    def _json(self, path: str, status: int, body: bytes) -> Any:
        if status != 200:
            raise self._refused(path, status, body)
        try:
            return parse_json(body, _BOUNDS, numbers="text")
        except Unreadable as error:
            raise MeasurementError(
                f"{self.url}{path} did not answer with JSON of SGLang: it {error}: {self._shown(body)}",
                culprit="engine",
                fix="check that the URL is an SGLang server; look at its log",
            ) from error

    def _object(self, path: str, status: int, body: bytes) -> dict[str, Any]:
        answer = self._json(path, status, body)
        return answer if isinstance(answer, dict) else {}

    def _shown(self, body: bytes) -> str:
        # A key that the cut goes through has its beginning at the very edge, where it is hidden as well.
        text = redact_text(body[:4096].decode("utf-8", errors="replace"), secrets=self._secrets)
        return "".join(c if c.isprintable() else " " for c in text[:300]).strip()


def checked_url(url: str, *, key: Secret | None) -> str:
    """Return a server's URL in the one form in which it is used; warn where ``key`` would go over it unencrypted.

    :raises ServerError: if it is no URL of a server.
    """
    url = url if "//" in url else f"http://{url}"
    problem = url_problem(url)
    if problem:
        raise ServerError(problem, culprit="harness", fix="name the server as http://HOST:PORT")
    if key is not None and not (key.reveal().isascii() and key.reveal().isprintable()):
        # It goes to the socket past httpx, which would have refused a line end.
        what = "the API key has a character that no HTTP header may hold"
        raise ServerError(what, culprit="harness", fix="set SPECPROBE_API_KEY to the key alone, without a line end")
    parts = urlsplit(url)
    if key is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        logger.warning("the API key goes to %s unencrypted; https would protect it", parts.hostname)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's own loopback."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
