"""From a request's bytes to its answer's bytes: header, route, decode, handler, encode.

`Dispatcher.serve` is the whole path of a request that is answered at once; it is one long function on
purpose, because each call costs as much as a look-up.  What is rare has functions of its own.
Reference: broker-errors 2 and 11.
"""

import logging
from collections.abc import Callable, Sequence
from inspect import isawaitable
from struct import Struct, error
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kafkalike.broker.handlers.api_versions import unsupported_version
from kafkalike.broker.handlers.request import PackedAnswer, RequestContext, Route, Session
from kafkalike.errors import KafkaError, UnknownServerError, error_name
from kafkalike.messages.catalog import ApiKey, find_api, response_class
from kafkalike.messages.error_forms import error_response
from kafkalike.metrics import Counter, Histogram, Metrics
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_request_header,
    request_header_version,
    response_header_version,
)
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.runtime.ports import Buffer, Clock, FileRange
from kafkalike.runtime.tasks import as_deferred

_HEADER: Final = Struct(">Iih")
_PREFIX: Final = Struct(">ii")
_KEY_AND_VERSION: Final = Struct(">hh")
_RAW_PREFIX: Final = Struct(">i")
_BEFORE_AUTHENTICATION: Final = frozenset(
    (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
)


class Answering(Protocol):
    """What the dispatcher needs of a connection; `active_s` is when the last request arrived."""

    session: Session
    active_s: float

    def send(self, parts: "Sequence[Buffer | FileRange]", ctx: RequestContext) -> None:
        """Send an answer at once, then mute or close as the context says."""

    def skip(self, ctx: RequestContext) -> None:
        """The request is done and has no answer; mute or close as the context says."""

    def wait(self) -> None:
        """Hold further requests back until `send` or `skip`."""

    def fail(self, reason: str) -> None:
        """Close without an answer."""


class RequestQuotas(Protocol):
    """Request-time quotas (reference: configs 4)."""

    def request_done(self, ctx: RequestContext, handler_s: float) -> int:
        """Record the time spent on a request; how long its connection is to be muted, in ms."""


class ServedVersion:
    """One version of one API, with all that can be known before a request comes."""

    __slots__ = (
        "answer_types",
        "api_key",
        "decode",
        "flexible",
        "handler",
        "local_time",
        "name",
        "requests",
        "response_flexible",
        "total_time",
        "unusual",
        "version",
    )

    def __init__(self, route: Route, version: int, metrics: Metrics) -> None:
        api = find_api(route.api_key)
        self.name = api.name if api is not None else f"ApiKey{route.api_key}"
        self.api_key = route.api_key
        self.version = version
        self.handler = route.handler
        self.decode: Callable[[Buffer, int, int], tuple[Any, int]]
        self.decode = route.request_class.decode_prefix
        header_version = request_header_version(route.api_key, version)
        self.unusual = header_version == 0
        self.flexible = header_version == 2
        self.response_flexible = response_header_version(route.api_key, version) == 1
        self.answer_types: tuple[type[Any], ...] = (response_class(route.api_key), PackedAnswer)
        network, kind = "kafka.network", "RequestMetrics"
        self.requests: Counter = metrics.counter(
            network, kind, "RequestsPerSec", request=self.name, version=str(version)
        )
        self.total_time: Histogram = metrics.histogram(
            network, kind, "TotalTimeMs", request=self.name
        )
        self.local_time: Histogram = metrics.histogram(
            network, kind, "LocalTimeMs", request=self.name
        )


class Dispatcher:
    """Knows what the broker serves; one for all connections of a node."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        clock: Clock,
        metrics: Metrics,
        logger: logging.Logger,
        quotas: RequestQuotas | None = None,
        on_broken_invariant: Callable[[AssertionError], object] | None = None,
    ) -> None:
        """`on_broken_invariant` is told of an AssertionError out of a handler: a node whose state is
        not what it must be is better stopped than wrong.

        Raises ValueError when two routes serve one API.
        """
        self._routes: dict[int, Route] = {}
        for route in routes:
            if route.api_key in self._routes:
                raise ValueError(f"two routes for api key {route.api_key}")
            self._routes[route.api_key] = route
        self._served: dict[int, ServedVersion] = {}
        self._clock = clock
        self._monotonic = clock.monotonic
        self._metrics = metrics
        self._logger = logger
        self._quotas = quotas
        self._on_broken_invariant = on_broken_invariant

    def serve(self, connection: Answering, frame: memoryview) -> None:
        """Handle one request; its answer goes to the connection, now or later."""
        connection.active_s = received_s = self._monotonic()
        session = connection.session
        if session.raw_tokens is not None:
            self._serve_token(connection, frame, received_s)
            return
        try:
            key_and_version, correlation_id, client_bytes = _HEADER.unpack_from(frame)
            served = self._served.get(key_and_version)
            if served is None:
                served = self._serve_first(connection, frame)
                if served is None:
                    return
            position = 10 + client_bytes if client_bytes > 0 else 10
            if served.unusual or position > len(frame) or (served.flexible and frame[position]):
                header, position = decode_request_header(frame)
            else:
                client_id = frame[10:position].tobytes().decode("utf-8", "replace")
                header = RequestHeader(served.api_key, served.version, correlation_id, client_id)
                if served.flexible:
                    position += 1  # no tagged fields
        except (error, IndexError, MalformedMessage) as problem:
            self._refuse(connection, frame, f"malformed header: {problem}")
            return
        version = served.version
        try:
            request, _ = served.decode(frame, version, position)
        except MalformedMessage as problem:
            self._refuse(connection, frame, f"malformed {served.name} v{version}: {problem}")
            return
        if (
            not session.authenticated or received_s > session.expires_s
        ) and served.api_key not in _BEFORE_AUTHENTICATION:
            self._refuse(connection, frame, f"{served.name} without authentication")
            return
        ctx = RequestContext(header, session, received_s, len(frame) + 4)
        served.requests.count += 1
        try:
            answer = served.handler(request, ctx)
        except Exception as problem:
            answer = self._error_answer(served, request, ctx, problem)
        if isinstance(answer, served.answer_types):
            self._answer(connection, served, ctx, answer, None)
        elif answer is None:
            self._answer(connection, served, ctx, None, None)
        elif isawaitable(answer):
            self._wait(connection, served, request, ctx, answer)
        else:
            wrong = TypeError(f"handler of {served.name} returned {type(answer).__name__}")
            answer = self._error_answer(served, request, ctx, wrong)
            self._answer(connection, served, ctx, answer, None)

    def _answer(
        self,
        connection: Answering,
        served: ServedVersion,
        ctx: RequestContext,
        answer: Any,
        local_ms: float | None,
    ) -> None:
        """Encode and send; `local_ms`: the handler's own time when it was not all the time."""
        if self._quotas is not None or ctx.throttle_ms:
            self._throttle(ctx, answer, local_ms)
        if answer is None:
            connection.skip(ctx)
        else:
            parts = answer.encode_parts(served.version)
            extra = 5 if served.response_flexible else 4
            first = parts[0] if parts else b""
            if len(parts) == 1 and type(first) is bytes:
                start = _PREFIX.pack(len(first) + extra, ctx.header.correlation_id)
                connection.send((start + b"\0" + first if extra == 5 else start + first,), ctx)
            else:
                size = 0
                for part in parts:
                    size += len(part)
                    if type(part) is FileRange:
                        part.file.retain()  # the transport releases it when it is sent
                start = _PREFIX.pack(size + extra, ctx.header.correlation_id)
                if extra == 5:
                    start += b"\0"
                if type(first) is bytes:
                    parts[0] = start + first  # one system call less
                else:
                    parts.insert(0, start)
                connection.send(parts, ctx)
        total_ms = (self._monotonic() - ctx.received_s) * 1000.0
        served.total_time.update(total_ms)
        served.local_time.update(total_ms if local_ms is None else local_ms)

    def _wait(
        self,
        connection: Answering,
        served: ServedVersion,
        request: Any,
        ctx: RequestContext,
        answer: Any,
    ) -> None:
        local_ms = (self._monotonic() - ctx.received_s) * 1000.0
        pending: Deferred[Any] = as_deferred(answer)
        waiting = True

        def finish(value: Any) -> None:
            nonlocal waiting
            waiting = False
            if isinstance(value, Failure):
                value = self._error_answer(served, request, ctx, _error_of(value))
            elif value is not None and not isinstance(value, served.answer_types):
                wrong = TypeError(f"handler of {served.name} gave {type(value).__name__}")
                value = self._error_answer(served, request, ctx, wrong)
            self._answer(connection, served, ctx, value, local_ms)

        pending.addBoth(finish)
        if waiting:
            connection.wait()
        pending.addErrback(self._answer_failed, connection, served)

    def _answer_failed(
        self, failure: Failure, connection: Answering, served: ServedVersion
    ) -> None:
        self._logger.error(
            "closing connection: its answer could not be sent connection=%s request=%s",
            connection.session.connection_id,
            served.name,
            exc_info=_error_of(failure),
        )
        connection.fail("the answer could not be sent")

    def _error_answer(
        self, served: ServedVersion, request: Any, ctx: RequestContext, problem: BaseException
    ) -> Any:
        """The API's own form of an error; None (and the connection closes) where it has none."""
        error_sent = problem if isinstance(problem, KafkaError) else UnknownServerError()
        if error_sent is not problem:
            self._logger.error(
                "request failed request=%s version=%d connection=%s client_id=%s",
                served.name,
                served.version,
                ctx.session.connection_id,
                ctx.header.client_id,
                exc_info=problem,
            )
            if isinstance(problem, AssertionError) and self._on_broken_invariant is not None:
                self._on_broken_invariant(problem)
        self._metrics.counter(
            "kafka.network",
            "RequestMetrics",
            "ErrorsPerSec",
            request=served.name,
            error=error_name(error_sent.code),
        ).mark()
        answer = error_response(request, served.version, error_sent)
        if answer is None:
            ctx.close_connection(f"{served.name} without answer failed")
        return answer

    def _throttle(self, ctx: RequestContext, answer: Any, local_ms: float | None) -> None:
        if self._quotas is not None:
            spent_s = self._monotonic() - ctx.received_s if local_ms is None else local_ms / 1000.0
            ctx.throttle_ms = max(ctx.throttle_ms, self._quotas.request_done(ctx, spent_s))
        if ctx.throttle_ms > 0 and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = max(answer.throttle_time_ms, ctx.throttle_ms)

    # What happens once for each version, or to strangers.

    def _serve_first(self, connection: Answering, frame: memoryview) -> ServedVersion | None:
        """Make ready for a version that was not asked for so far; None when it is not served.

        Raises MalformedMessage when the header of an ApiVersions request cannot be read.
        """
        api_key, version = _KEY_AND_VERSION.unpack_from(frame)
        route = self._routes.get(api_key)
        if route is not None and route.min_version <= version <= route.max_version:
            served = ServedVersion(route, version, self._metrics)
            self._served[(api_key << 16) | version] = served
            return served
        if api_key == ApiKey.API_VERSIONS:
            header, _ = decode_request_header(frame)
            self._answer_unknown_version(connection, header, route, len(frame) + 4)
        elif route is None:
            self._refuse(connection, frame, f"api key {api_key} is not served")
        else:
            self._refuse(
                connection,
                frame,
                f"api key {api_key} is served in versions {route.min_version} to"
                f" {route.max_version}, not {version}",
            )
        return None

    def _answer_unknown_version(
        self, connection: Answering, header: RequestHeader, route: Route | None, size: int
    ) -> None:
        ctx = RequestContext(header, connection.session, self._monotonic(), size)
        body = unsupported_version(route).encode(0)
        connection.send((_PREFIX.pack(len(body) + 4, header.correlation_id) + body,), ctx)

    def _refuse(self, connection: Answering, frame: memoryview, reason: str) -> None:
        session = connection.session
        self._logger.warning(
            "closing connection: %s connection=%s listener=%s principal=%s bytes=%d",
            reason,
            session.connection_id,
            session.listener,
            session.principal,
            len(frame),
        )
        connection.fail(reason)

    def _serve_token(self, connection: Answering, frame: memoryview, received_s: float) -> None:
        """A frame of a SASL exchange that was opened by SaslHandshake v0: no request around it."""
        session = connection.session
        assert session.raw_tokens is not None
        ctx = RequestContext(
            RequestHeader(ApiKey.SASL_AUTHENTICATE, 0, 0), session, received_s, len(frame) + 4
        )

        async def exchange() -> None:
            assert session.raw_tokens is not None
            reply = session.raw_tokens(bytes(frame), session)
            if isawaitable(reply):
                reply = await reply
            if reply is None:
                connection.skip(ctx)
            else:
                connection.send((_RAW_PREFIX.pack(len(reply)) + reply,), ctx)

        def failed(failure: Failure) -> None:
            self._logger.warning(
                "closing connection: authentication failed connection=%s listener=%s error=%s",
                session.connection_id,
                session.listener,
                failure.getErrorMessage(),
            )
            connection.fail("authentication failed")

        pending = Deferred.fromCoroutine(exchange())
        if not pending.called:
            connection.wait()
        pending.addErrback(failed)


def _error_of(failure: Failure) -> BaseException:
    """The exception in a failure, with its traceback."""
    problem = failure.value
    assert problem is not None
    return problem.with_traceback(failure.getTracebackObject())
