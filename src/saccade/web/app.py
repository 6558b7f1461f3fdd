"""The explorer's server: JSON about one lab and the files of the page, on this machine only.

Nothing from a request becomes a path: keys are 12 hex digits, names are looked up in lists, the page's files are read
once at the start. Nothing from a request is executed. Other sites cannot ask: host and origin are checked.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mimetypes
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saccade.report.figures import jsonable
from saccade.spec import DamagedFile, SaccadeError
from saccade.web import profiles
from saccade.web.explorer import Explorer
from saccade.web.page import page_files

HOSTS = ("127.0.0.1", "localhost", "[::1]")
LARGEST = 400_000  # bytes of a body: an image of 64 x 64 pixels with opacity, as text, is far below
AT_ONCE = 4  # requests that read the lab at the same time
MOST_NEWEST = 1000  # runs of a first screen
WAITING = 200  # requests that may wait for their turn; one more is answered with "come back"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def create(explorer: Explorer) -> ASGIApp:
    """The application for one lab; its catalogue is kept up to date while it runs."""
    turn = anyio.CapacityLimiter(AT_ONCE)
    look_turn = anyio.CapacityLimiter(1)  # models answer one after another: torch uses all cores for one
    files = page_files()

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        explorer.catalogue.start()
        yield
        explorer.catalogue.stop()

    async def answer(limiter: anyio.CapacityLimiter, ask: Callable[[], Any]) -> Response:
        if limiter.statistics().tasks_waiting >= WAITING:
            raise HTTPException(429, "too many requests at once; come back in a moment.", {"retry-after": "1"})
        return as_json(await anyio.to_thread.run_sync(ask, limiter=limiter))

    def get(path: str, ask: Callable[..., Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await answer(turn, functools.partial(ask, **request.path_params))

        return Route(path, endpoint, methods=["GET"])

    def post(path: str, ask: Callable[[dict[str, Any]], Any], limiter: anyio.CapacityLimiter) -> Route:
        async def endpoint(request: Request) -> Response:
            values = await body(request)
            return await answer(limiter, functools.partial(ask, values))

        return Route(path, endpoint, methods=["POST"])

    async def index(request: Request) -> Response:
        return Response(files["index.html"], media_type="text/html; charset=utf-8")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404, "no such file.")
        return Response(files[name], media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")

    async def all_runs(request: Request) -> Response:
        since, newest = (request.query_params.get(name, "-1") for name in ("since", "newest"))
        if not (since + newest).isascii() or not since.removeprefix("-").isdecimal() or len(since) > 12:
            raise HTTPException(400, "since takes a version, a whole number.")
        if newest != "-1" and (not newest.isdecimal() or not 1 <= int(newest[:8]) <= MOST_NEWEST):
            raise HTTPException(400, f"newest takes a number of runs, 1 to {MOST_NEWEST}.")
        encoded, most = (explorer.catalogue.encoded, since) if newest == "-1" else (explorer.catalogue.newest, newest)
        text = await anyio.to_thread.run_sync(functools.partial(encoded, int(most)), limiter=turn)
        return Response(text, media_type="application/json")

    async def measure(request: Request) -> Response:
        at = dict(request.query_params)
        return await answer(turn, functools.partial(explorer.catalogue.measure, request.path_params["metric"], at))

    async def pulse(request: Request) -> Response:
        return as_json(explorer.pulse())

    async def figure_csv(request: Request) -> Response:
        csv_text = await anyio.to_thread.run_sync(
            functools.partial(explorer.studies.figure_csv, **request.path_params), limiter=turn
        )
        name = f"{request.path_params['figure']}.csv"
        return Response(
            csv_text, media_type="text/csv", headers={"content-disposition": f'attachment; filename="{name}"'}
        )

    routes = [
        Route("/", index),
        Route("/static/{name}", static),
        Route("/api/pulse", pulse),
        Route("/api/runs", all_runs),
        Route("/api/measure/{metric}", measure),
        Route("/api/study/{name}/{folder}/{figure}.csv", figure_csv),
        get("/api/lab", explorer.about),
        get("/api/studies", explorer.cards),
        get("/api/study/{name}/{folder}", explorer.study),
        get("/api/run/{key}", explorer.run),
        get("/api/measures", explorer.catalogue.measures),
        get("/api/profiles", lambda: profiles.all_of(explorer.lab)),
        post("/api/compare", explorer.compare, turn),
        post("/api/look", lambda values: explorer.looker().see(values), look_turn),
        post("/api/look/stock", lambda values: explorer.looker().stock(values), look_turn),
    ]
    handlers = {HTTPException: refused, SaccadeError: mistaken, DamagedFile: damaged, Exception: broken}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=life)  # type: ignore[arg-type]
    app.router.redirect_slashes = False
    return Guard(app)


def as_json(value: Any, status: int = 200) -> Response:
    text = json.dumps(jsonable(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Half of a pair of surrogates, which JSON can name in a request and UTF-8 cannot write, must not become an error.
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


async def body(request: Request) -> dict[str, Any]:
    """A JSON object of bounded size; a form or a page of another site cannot send this type unasked."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send application/json.")
    received = b""
    async for part in request.stream():
        received += part
        if len(received) > LARGEST:
            raise HTTPException(413, f"a request may have {LARGEST} bytes.")
    try:
        document = json.loads(received)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is no JSON.") from None
    if not isinstance(document, dict):
        raise HTTPException(400, "the body must be a JSON object.")
    return document


async def refused(request: Request, error: HTTPException) -> Response:
    response = as_json({"error": str(error.detail)}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def mistaken(request: Request, error: SaccadeError) -> Response:
    unknown = str(error).startswith("no ")
    return as_json({"error": str(error)}, 404 if unknown else 400)


async def damaged(request: Request, error: DamagedFile) -> Response:
    return as_json({"error": str(error), "damaged": True}, 409)


async def broken(request: Request, error: Exception) -> Response:
    """A mistake of ours: its traceback goes to the terminal, not to the page."""
    return as_json({"error": "the explorer made a mistake; the terminal it runs in says which."}, 500)


class Guard:
    """Answers only those who named this machine as the host, and no page of another site."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present_names = {name.lower() for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present_names]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        why = refusal(scope)
        if why:
            await as_json({"error": why}, 403)(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)


def refusal(scope: Scope) -> str:
    """Why a request is not answered; empty for one that is."""
    headers = {k.decode("latin1").lower(): v.decode("latin1") for k, v in scope["headers"]}
    header_names = [k.lower() for k, _ in scope["headers"]]
    if max(header_names.count(b"origin"), header_names.count(b"sec-fetch-site")) > 1:
        return "the explorer does not answer other sites."  # a header that is given twice is not trusted
    host = headers.get("host", "")
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    name = name or host
    if name not in HOSTS or (scope.get("server") and port and port != str(scope["server"][1])):
        return "the explorer answers only to 127.0.0.1 and localhost."  # a foreign name that resolves to this machine
    if "origin" in headers and headers["origin"] != f"http://{host}":
        return "the explorer does not answer other sites."
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return ""
    if scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate":
        return ""  # a link to the page itself
    return "the explorer does not answer other sites."


def listen(port: int | None) -> socket.socket:
    """A socket on this machine's own address: the port asked for, or the first free one from 8377 on."""
    for number in range(8377, 8397) if port is None else (port,):
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", number))
        except (OSError, OverflowError) as error:
            server.close()
            if port is not None:
                why = getattr(error, "strerror", None) or error
                raise SaccadeError(f"port {port} cannot be used ({why}); name another with --port.") from None
            continue
        server.listen(1024)
        return server
    raise SaccadeError("ports 8377 to 8396 are all in use; name another with --port.")


def serve(explorer: Explorer, listening: socket.socket) -> None:
    """Answer until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        create(explorer),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        http="h11",
        ws="none",
        limit_concurrency=2000,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
