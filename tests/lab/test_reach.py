"""Addresses where there is no Ray cluster: one sentence, at once. Ray itself would wait for minutes."""

import contextlib
import socket
import threading

import pytest

from saccade.lab import cluster, where
from saccade.spec import SaccadeError

pytest.importorskip("ray")


@contextlib.contextmanager
def somebody(answer):
    """A server of another kind: answers whatever it hears, once; the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                line, _ = server.accept()
                with line:
                    line.recv(100)
                    line.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"", b"\0\0"])
def test_another_server_is_no_cluster(answer):
    with somebody(answer) as address, pytest.raises(SaccadeError, match="is no Ray cluster; `ray start"):
        cluster.connect(address)


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(SaccadeError, match="no Ray cluster answers at"):
        cluster.connect(address)


@pytest.mark.parametrize(
    "address", ["abc", ":5", "host:", "host:port", "host:99999999", "host:-1", "host:¹", "ray://x:1"]
)
def test_what_is_no_address(address):
    with pytest.raises(SaccadeError, match="--on takes ray:HOST:PORT, not"):
        cluster.connect(address)


@pytest.mark.parametrize("remembered", ["127.0.0.1:1", "", "no address"])
def test_a_cluster_that_was_killed_is_not_waited_for(remembered, tmp_path, monkeypatch):
    """Ray keeps the address of this machine's last cluster in a file, and looks for it for minutes."""
    started = []
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "_start", lambda *_: started.append("own"))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(remembered)
    cluster.connect("")
    assert started == ["own"]


def test_a_local_cluster_that_was_asked_for_is_this_process_own(monkeypatch):
    """Nothing can be left running on it, so that Ctrl-C must not offer that."""
    started = []
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(cluster, "_start", lambda *_: started.append("own"))
    cluster.connect("")
    assert started == ["own"]


def test_a_command_says_which_cluster_it_joined(monkeypatch):
    """Without an address Ray joins whatever runs on this machine, perhaps another user's."""
    monkeypatch.setattr(cluster, "is_own", lambda: False)
    monkeypatch.setattr(cluster, "address", lambda: "10.0.0.1:6379")
    assert where.OnRay().words() == " on Ray at 10.0.0.1:6379"
    monkeypatch.setattr(cluster, "is_own", lambda: True)
    assert where.OnRay().words() == " on Ray, started for this command"
    assert where.Local().words() == ""
