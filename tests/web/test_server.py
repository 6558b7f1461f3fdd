"""The server as a stranger meets it: paths, hosts, origins, bodies, crowds. Nothing leaks, and it stays up."""

import asyncio
import http.client
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.web.labs import Served, key_of

pytestmark = pytest.mark.slow  # a server in a process of its own


def ask(served, path, method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    sent = {"Host": f"127.0.0.1:{served.port}", **(headers or {})}
    if body is not None:
        sent.setdefault("Content-Length", str(len(body)))
        sent.setdefault("Content-Type", "application/json")
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response, text


def is_up(served):
    response, text = ask(served, "/api/pulse")
    return response.status == 200 and json.loads(text)["born"]


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/static/style.css", "/api/lab", "/api/studies", "/api/runs"])
def test_the_page_and_its_answers_are_there(served, path):
    response, text = ask(served, path)
    assert response.status == 200 and text


def test_every_answer_forbids_what_the_page_does_not_need(served):
    response, _ = ask(served, "/")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers


TRAVERSAL = [
    "/..",
    "/../../../../etc/passwd",
    "/static/../app.py",
    "/static/..%2fapp.py",
    "/static/%2e%2e/app.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/....//app.py",
    "/static/main.js/../../app.py",
    "/static/main.js%00.css",
    "/etc/passwd",
    "//etc/passwd",
    "/api/run/..",
    "/api/run/..%2f..%2fetc",
    "/api/run/%2e%2e%2f",
    "/api/run/0123456789ab/../../x",
    "/api/run/%00",
    "/api/study/../demo",
    "/api/study/digits_on_backgrounds/..%2f..",
    "/api/study/digits_on_backgrounds/demo/../../../etc.csv",
    "/api/study/..%2f..%2fetc/demo",
    "/api/measure/..%2f..%2fetc",
    "/api/nothing",
    "/api/runs?since=../../etc",
    "/api/runs?since=1e9",
    "/api/runs?since=--5",
    "/api/runs?since=-1&since=x",
    "/api/runs?since=",
    "/api/runs?newest=0",
    "/api/runs?newest=../1",
    "/api/runs?newest=%D9%A3",  # a digit of another script
    "/api/runs?newest=" + "9" * 400,
    "/api/runs?since=" + "9" * 400,
    "/\\..\\..\\etc",
    "/static/..\\app.py",
    "/static/..%5capp.py",
    "/static/..%252fapp.py",
    "/static/%252e%252e%252fapp.py",
    "/static/%c0%ae%c0%ae%c0%afapp.py",
    "/static/file:%2f%2f%2fetc%2fpasswd",
    "/api/run/..%252f..%252fetc",
    "/api/run/%2fetc%2fpasswd",
    "/api/study/digits_on_backgrounds/%2fetc%2fpasswd.csv",
    "/api/study/digits_on_backgrounds/demo/..%2f..%2f..%2fcosts.csv",
    "/api/study/digits_on_backgrounds/demo%2f..%2f..%2f..",
    "/api/measure/%2fetc%2fpasswd?split=..%2f..",
    "/api/study/digits_on_backgrounds/%00",
    "/api/study/digits_on_backgrounds/demo/x%0d%0aset-cookie:a=b.csv",
    "/api/run/0123456789ab%0a",
    "/api/measure/%ed%a0%80",  # half of a pair of surrogates
    "/./api/lab",
    "/api/lab/",
    "/STATIC/main.js",
    "/static/" + "a" * 5000,
    "/" + "a" * 60_000,
]


@pytest.mark.parametrize("path", TRAVERSAL)
def test_a_path_out_of_the_lab_leads_nowhere(served, path):
    response, text = ask(served, path)
    assert 400 <= response.status < 500, (path, response.status)
    assert b"root:" not in text and b"Traceback" not in text and b"import " not in text
    assert is_up(served)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8377",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "[::1].evil.example",
        "localhost.",
        "127.1",
        "2130706433",
        "",
        "localhost:1",
        "0.0.0.0",
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(served, host):
    response, text = ask(served, "/api/lab", headers={"Host": host})
    assert response.status in (400, 403)
    assert b"root" not in text


def test_the_name_localhost_is_fine(served):
    response, _ = ask(served, "/api/lab", headers={"Host": f"localhost:{served.port}"})
    assert response.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_another_site_gets_no_answer(served, headers):
    response, _ = ask(served, "/api/lab", headers=headers)
    assert response.status == 403


def test_a_link_from_another_site_opens_the_page_only(served):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(served, "/", headers=headers)[0].status == 200


def test_a_preflight_of_another_site_is_refused(served):
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    response, _ = ask(served, "/api/look", "OPTIONS", headers=headers)
    assert response.status in (403, 405)
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "POST"])
def test_nothing_can_be_written(served, method):
    response, _ = ask(served, "/api/runs", method, body=b"{}")
    assert response.status == 405


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_form_could_send_is_refused(served, kind):
    response, _ = ask(served, "/api/look", "POST", body=b"{}", headers={"Content-Type": kind})
    assert response.status == 415


BODIES = [
    b"",
    b"{",
    b"[]",
    b"3",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"models": [{"run": {"$ne": 1}}]}',
    b'{"models": "x", "picture": []}',
    b'{"models": [{"run": "0123456789ab"}], "picture": {"pixels": "AAAA"}}',
    b'{"models": [{"run": "../../../../"}]}',
    b'{"models": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
    b'{"picture": {"index": ' + b"9" * 5_000 + b"}}",
    b'{"picture": {"move": {"dx": 1e999, "dy": NaN}}}',
    b'{"models": [{"run": "\\ud800"}], "picture": {"index": 0}}',  # half of a pair of surrogates
    b'{"models": [], "models": [{"run": "../../x"}], "picture": {}}',
    b'\xef\xbb\xbf{"models": []}',
    b'{"a": ["0123456789ab"], "b": ["0123456789ab"], "metric": "accuracy", "at": {"split": {}}}',
]


@pytest.mark.parametrize("path", ["/api/look", "/api/look/stock", "/api/compare"])
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_of_the_wrong_type_is_refused(served, path, body):
    response, text = ask(served, path, "POST", body=body)
    assert 400 <= response.status < 500, (response.status, text[:200])
    assert b"Traceback" not in text
    assert is_up(served)


@pytest.mark.parametrize(
    ("announced", "piece"),
    [
        ("Content-Length: 10000000000", b"x" * 65536),
        ("Transfer-Encoding: chunked", b"10000\r\n" + b"x" * 65536 + b"\r\n"),  # no size, so that only counting helps
    ],
    ids=["huge", "without an end"],
)
def test_a_body_that_is_too_large_is_refused(served, announced, piece):
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
        head = (
            f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
            f"{announced}\r\n\r\n"
        )
        wire.sendall(head.encode())
        answer = b""
        try:
            for _ in range(400):
                wire.sendall(piece)
        except OSError:
            pass  # the server hung up, as it should
        try:
            answer = wire.recv(200)
        except OSError:
            pass
    assert answer == b"" or b" 413 " in answer
    assert is_up(served)


def test_a_whole_address_in_the_request_line_is_no_way_around_the_host(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
        wire.sendall(b"GET http://127.0.0.1/api/lab HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        answer = wire.recv(400)
    assert answer.split(b" ", 2)[1][:1] == b"4"


@pytest.mark.parametrize("first", ["own", "foreign"])
def test_two_names_for_the_host_are_refused(served, first):
    names = [f"127.0.0.1:{served.port}", "evil.example"]
    lines = "".join(f"Host: {name}\r\n" for name in (names if first == "own" else names[::-1]))
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
        wire.sendall(f"GET /api/lab HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        answer = wire.recv(400)
    assert answer.split(b" ", 2)[1][:1] == b"4"


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site"])
@pytest.mark.parametrize("order", [1, -1])
def test_two_answers_to_where_a_request_comes_from_are_refused(served, name, order):
    own = {"Origin": f"http://127.0.0.1:{served.port}", "Sec-Fetch-Site": "same-origin"}[name]
    other = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}[name]
    lines = "".join(f"{name}: {value}\r\n" for value in [own, other][::order])
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
        wire.sendall(f"GET /api/lab HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{lines}\r\n".encode())
        answer = wire.recv(400)
    assert answer.split(b" ", 2)[1][:1] == b"4"


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_no_other_protocol_is_spoken(served, protocol):
    """A request to change it is answered as an ordinary one, and one of another site is refused."""
    more = {"Connection": "Upgrade", "Upgrade": protocol, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAA"}
    assert ask(served, "/api/pulse", headers=more)[0].status == 200
    assert ask(served, "/api/pulse", headers={**more, "Origin": "https://evil.example"})[0].status == 403


def test_head_is_an_answer_without_its_body(served):
    response, text = ask(served, "/api/lab", "HEAD")
    assert (response.status, text) == (200, b"")
    assert ask(served, "/api/lab", "HEAD", headers={"Host": "evil.example"})[0].status == 403


def test_clients_that_say_nothing_do_not_keep_others_out(served):
    wires = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(300)]
    try:
        for wire in wires[::2]:
            wire.sendall(b"GET /api/lab HTTP/1.1\r\nHost: 127")  # and never the rest
        assert is_up(served)
    finally:
        for wire in wires:
            wire.close()


def test_a_request_line_without_an_end_is_refused(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
        try:
            wire.sendall(b"GET /" + b"a" * 1_000_000)
            answer = wire.recv(200)
        except OSError:
            answer = b""
    assert answer == b"" or b" 4" in answer[:20]
    assert is_up(served)


def test_it_listens_on_this_machine_only(served):
    with open("/proc/net/tcp") as table:
        local = [line.split()[1] for line in table.readlines()[1:] if line.split()[3] == "0A"]
    mine = [at for at in local if int(at.rpartition(":")[2], 16) == served.port]
    assert mine == [f"0100007F:{served.port:04X}"]


def test_a_symbolic_link_in_the_lab_leads_nowhere(tmp_path, lab):
    import shutil

    copy = tmp_path / "lab"
    shutil.copytree(lab.root, copy)
    (tmp_path / "secret.json").write_text('{"secret": "do not tell"}')
    (copy / "profiles" / "mine").mkdir(parents=True)
    os.symlink(tmp_path / "secret.json", copy / "profiles" / "mine" / "profile.json")
    (copy / "runs" / "0123456789ab").mkdir()
    os.symlink(tmp_path / "secret.json", copy / "runs" / "0123456789ab" / "run.json")
    key = key_of(lab, "lenet", seed=0, backgrounds=8)
    (copy / "runs" / key / "log.jsonl").unlink()
    os.symlink(tmp_path / "secret.json", copy / "runs" / key / "log.jsonl")
    shutil.copytree(copy / "runs" / key, tmp_path / "outside")
    (tmp_path / "outside" / "log.jsonl").unlink()
    (tmp_path / "outside" / "log.jsonl").write_text('{"event": "saved", "why": "do not tell"}')
    os.symlink(tmp_path / "outside", copy / "runs" / "fedcba987654")
    os.mkfifo(copy / "runs" / "0123456789ab" / "log.jsonl")
    one = Served(copy, "--port", "0")
    try:
        for path in ("/api/profiles", "/api/run/0123456789ab", f"/api/run/{key}", "/api/run/fedcba987654", "/api/runs"):
            assert b"do not tell" not in ask(one, path)[1]
    finally:
        one.stop()


def test_a_thousand_clients_at_once(served, lab):
    """Everyone is answered or told to come back; the server is up afterwards and has no more than it had."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    look = json.dumps({"models": [{"run": key_of(lab, "lenet", seed=0, backgrounds=8)}], "picture": {"index": 1}})
    paths = [
        ("GET", "/api/runs", ""),
        ("GET", "/api/studies", ""),
        ("GET", "/static/main.js", ""),
        ("POST", "/api/look", look),
        ("GET", "/..%2f..", ""),
    ]
    ask(served, "/api/look", "POST", body=look.encode())  # torch is loaded once before the crowd comes
    before = memory(served.process.pid)

    async def one(i):
        method, path, body = paths[i % len(paths)]
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write((head + "\r\n" + body).encode())
        await writer.drain()
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]), path

    async def crowd():
        return await asyncio.wait_for(asyncio.gather(*(one(i) for i in range(1000))), 500)

    try:
        with ThreadPoolExecutor(1) as aside:  # a thread of its own: the browser's tests keep a loop in this one
            told = aside.submit(lambda: asyncio.run(crowd())).result()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {code for code, _ in told} <= {200, 404, 429}
    assert sum(code == 200 for code, _ in told) > 400
    assert is_up(served)
    assert memory(served.process.pid) - before < 300e6


def memory(pid):
    with open(f"/proc/{pid}/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_port_that_is_taken_is_named(served, lab, tmp_path):
    import subprocess
    import sys

    words = [sys.executable, "-m", "saccade", "serve", "--lab", str(tmp_path), "--port", str(served.port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert f"port {served.port} cannot be used" in done.stderr
