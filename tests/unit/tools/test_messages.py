"""What commands say when something is in the way."""

import io
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from kafkalike.tools import cli
from kafkalike.tools.listeners import who_listens
from kafkalike.tools.local.layout import Reservations, last_line


def test_whoever_listens_on_a_port_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert who_listens(port) == ""
        server.listen()
        assert who_listens(port).startswith(f" (process {os.getpid()}, ")
        with pytest.raises(cli.CommandError) as caught:
            Reservations().take("broker-1", port)
        text = str(caught.value)
        assert text.startswith(f"port {port} for broker-1: Address already in use (process ")
        assert "--port 0" in text
    assert who_listens(port) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[2024] INFO a\nerror: no room\n[2024] INFO stopped\n", "no room"),
        (
            "[2024] INFO a\n[2024] ERROR no room (x)\n[2024] INFO stopped\n",
            "[2024] ERROR no room (x)",
        ),
        ("[2024] INFO a\n[2024] INFO stopped\n", "[2024] INFO stopped"),
    ],
)
def test_the_line_that_tells_why_a_broker_ended(
    tmp_path: pathlib.Path, text: str, found: str
) -> None:
    path = tmp_path / "broker.log"
    path.write_text(text)
    assert last_line(path) == found


def test_what_an_encoding_lacks_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    cli.write_everything(stream)
    cli.print_table(("KEY",), [("gr\u00fc\u00dfe",)], stream)
    stream.flush()
    assert raw.getvalue() == b"KEY\ngr\\xfc\\xdfe\n"


def test_the_commands_need_nothing_of_their_surroundings(tmp_path: pathlib.Path) -> None:
    """No HOME, no terminal, no locale, as in a container."""
    root = pathlib.Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.main", "dump-log", "--files", "/nonexistent"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: /nonexistent: no such file or directory\n"


def test_errors_of_the_system_come_without_their_numbers() -> None:
    def run() -> int:
        raise FileNotFoundError(2, "No such file or directory", "/x/y")

    assert cli.guarded(run) == cli.FAILED
    assert cli.describe_os_error(OSError(2, "No such file", "/x")) == "/x: No such file"
    assert cli.describe_os_error(OSError("plain")) == "plain"


def test_a_control_port_that_is_taken_is_told_in_one_line(tmp_path: pathlib.Path) -> None:
    up = [sys.executable, "-m", "kafkalike.tools.main", "up"]
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        done = subprocess.run(
            [*up, "--brokers", "1", "--port", "0", "--control-port", str(port)],
            cwd=pathlib.Path(__file__).resolve().parents[3],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --control-port {port}: Address already in use (process ")
    assert len(done.stderr.splitlines()) == 1
