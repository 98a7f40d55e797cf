"""`kafkalike up`: readiness, the end, the second start, and everything that can go wrong between."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from kafkalike.testing import Cluster
from tests.integration.testing.processes import Up, is_alive, listens, until

confluent_kafka = pytest.importorskip("confluent_kafka")


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, callback=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count} came"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def test_ready_is_told_by_line_file_and_http(tmp_path: pathlib.Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("left from another life")
    arguments = ("--port", "0", "--brokers", "3", "--control-port", "0")
    with Up(*arguments, "--ready-file", str(ready_file)).ready() as up:
        assert json.loads(ready_file.read_text()) == up.facts
        with urllib.request.urlopen(up.facts["control"] + "/ready", timeout=10) as response:
            assert response.status == 200
            assert json.loads(response.read())["bootstrap_servers"] == up.facts["bootstrap_servers"]
        assert len(up.brokers) == 3
        assert all(is_alive(one["pid"]) for one in up.brokers.values())
        produce(up.facts["bootstrap_servers"], "t", [b"1"])
        pids, directory = up.pids(), up.directory
        assert len(pids) == 5
        assert up.stop() == 0
        assert up.event() == {"event": "stopping"}
        assert up.errors() == []
        assert not ready_file.exists()
        assert not directory.exists()
        assert not any(is_alive(pid) for pid in pids)


def http(
    url: str, method: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, str | None]:
    """Status, answer and the Allow header."""
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read() or b"null"), None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null"), error.headers["Allow"]


def test_only_post_acts() -> None:
    """Whoever follows a link, or asks what a path is, breaks nothing."""
    with Up("--port", "0", "--brokers", "1", "--control-port", "0").ready() as up:
        control = up.facts["control"]
        asking = "GET, HEAD, POST"
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            status, answer, allow = http(f"{control}/kill?broker=1", method)
            assert (status, allow) == (405, "POST")
            if method != "HEAD":
                assert answer == {"error": f"kill: expected POST, found {method}"}
        for verb in ("reset", "shutdown", "create-topic?topic=t", "prepare_groups", "advance"):
            assert http(f"{control}/{verb}", "GET")[0::2] == (405, "POST")
        assert http(f"{control}/info", "DELETE")[0::2] == (405, asking)
        assert http(f"{control}/ready", "POST", b"{}")[0::2] == (405, "GET, HEAD")
        status, answer, _ = http(f"{control}/kill?broker=1", "POST", Origin="http://web.example")
        assert status == 403 and "http://web.example" in answer["error"]
        assert http(f"{control}/sing", "GET")[0] == 404
        for path in ("controller", "wait_brokers", "wait-controller?timeout_s=20", "topics"):
            assert http(f"{control}/{path}", "GET")[0] == 200
        assert http(f"{control}/controller", "POST")[:2] == (200, {"result": 1})
        assert http(f"{control}/topics?internal=true", "GET")[:2] == (200, {"result": []})
        assert http(f"{control}/info", "GET")[1]["result"]["brokers"]["1"]["state"] == "running"
        assert http(f"{control}/shutdown", "POST")[0] == 200
        assert up.wait() == 0


def test_a_second_start_goes_on(tmp_path: pathlib.Path) -> None:
    arguments = ("--port", "0", "--dir", str(tmp_path / "cluster"), "--brokers", "2")
    with Up(*arguments).ready() as up:
        first = up.facts
        produce(first["bootstrap_servers"], "t", [b"1", b"2"])
        assert up.stop() == 0
    with Up("--port", "0", "--dir", str(tmp_path / "cluster")).ready() as up:
        for same in ("bootstrap_servers", "zookeeper", "directory"):
            assert up.facts[same] == first[same]
        produce(first["bootstrap_servers"], "t", [b"3"])
        assert consume(first["bootstrap_servers"], "t", 3) == [b"1", b"2", b"3"]
        assert up.stop() == 0


def test_a_killed_cluster_goes_on(tmp_path: pathlib.Path) -> None:
    arguments = ("--port", "0", "--dir", str(tmp_path / "cluster"), "--brokers", "1")
    with Up(*arguments).ready() as up:
        produce(up.facts["bootstrap_servers"], "t", [b"1"])
        up.stop(signal.SIGKILL)
    with Up(*arguments).ready() as up:
        assert consume(up.facts["bootstrap_servers"], "t", 1) == [b"1"]
        assert up.stop() == 0


def test_a_port_taken_meanwhile_is_replaced(tmp_path: pathlib.Path) -> None:
    arguments = ("--port", "0", "--dir", str(tmp_path / "cluster"), "--brokers", "1")
    with Up(*arguments).ready() as up:
        before = up.facts["bootstrap_servers"]
        assert up.stop() == 0
    host, _, port = before.rpartition(":")
    with socket.create_server((host, int(port))), Up(*arguments).ready() as up:
        assert up.facts["bootstrap_servers"] != before
        produce(up.facts["bootstrap_servers"], "t", [b"1"])
        assert up.stop() == 0


def failing(*arguments: str) -> tuple[int, list[str]]:
    """Exit code and errors of a start that fails; nothing is left of it."""
    with Up(*arguments) as up:
        group = up.process.pid
        code = up.wait()
        errors = up.errors()
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)
    return code, errors


def test_failures_are_one_line(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = failing("--port", str(port), "--brokers", "1")
        assert (code, len(errors)) == (1, 1)
        start = f"error: port {port} for broker-1: Address already in use (process {os.getpid()}, "
        assert errors[0].startswith(start) and "--port 0" in errors[0]
    code, errors = failing("--port", "0", "--override", "log.segment.bytes=many")
    assert (code, len(errors)) == (1, 1)
    assert "log.segment.bytes" in errors[0]
    assert "many" in errors[0]
    code, errors = failing("--port", "0", "--brokers", "0")
    assert code == 2
    assert "--brokers: expected a whole number from 1 to 100, found '0'" in errors[-1]
    code, errors = failing("--port", "0", "--override", "broker.id=7")
    assert code == 2
    (tmp_path / "lock").mkdir()
    code, errors = failing("--port", "0", "--dir", str(tmp_path))
    assert (code, len(errors)) == (1, 1)
    code, errors = failing("--port", "0", "--until-exit-of", "999999999")
    assert (code, errors) == (1, ["error: --until-exit-of: there is no process 999999999"])


def test_one_supervisor_per_directory_and_no_fewer_brokers(tmp_path: pathlib.Path) -> None:
    arguments = ("--port", "0", "--dir", str(tmp_path), "--brokers", "2")
    with Up(*arguments).ready() as up:
        code, errors = failing(*arguments)
        assert (code, errors) == (1, [f"error: another kafkalike up runs on {tmp_path}"])
        assert up.stop() == 0
    code, errors = failing("--port", "0", "--dir", str(tmp_path), "--brokers", "1")
    assert (code, errors) == (1, [f"error: --brokers 1: {tmp_path} holds a cluster of 2"])


def test_a_broker_that_dies_is_reported_and_the_rest_goes_on() -> None:
    with Up("--port", "0", "--brokers", "2").ready() as up:
        os.kill(up.brokers["1"]["pid"], signal.SIGKILL)
        assert up.event() == {"event": "broker_exited", "broker": 1, "code": -9}
        assert listens(up.brokers["2"]["address"])
        assert up.stop() == 0
        assert up.errors()[0].startswith("broker-1 ended with -9; see ")


@pytest.mark.parametrize("mode", ["processes", "single"])
def test_nothing_outlives_a_killed_supervisor(mode: str) -> None:
    extra = ["--single-process"] if mode == "single" else []
    with Up("--port", "0", "--brokers", "2", *extra).ready() as up:
        pids, directory = up.pids(), up.directory
        up.stop(signal.SIGKILL)
        until(lambda: not any(is_alive(pid) for pid in pids), f"{pids} are left")
        if mode == "processes":
            until(lambda: not directory.exists(), f"{directory} is left")
        else:
            # Whoever could remove it was killed: the next start does.
            with Up("--port", "0", "--brokers", "1").ready() as another:
                until(lambda: not directory.exists(), f"{directory} is left")
                assert another.directory.exists()
                assert another.stop() == 0


def test_a_killed_nursery_takes_all_with_it() -> None:
    with Up("--port", "0", "--brokers", "2").ready() as up:
        pids = up.pids()
        brokers = {one["pid"] for one in up.brokers.values()}
        (nursery,) = set(pids) - brokers - {up.process.pid}
        os.kill(nursery, signal.SIGKILL)
        assert up.wait() == 1
        assert "the process that makes the brokers has ended" in up.errors()[-1]
        until(lambda: not any(is_alive(pid) for pid in pids), f"{pids} are left")


def test_a_frozen_broker_does_not_hold_up_the_end() -> None:
    with Up("--port", "0", "--brokers", "2", "--control-port", "0").ready() as up:
        Cluster.attach(up.facts["control"]).pause(1)
        assert up.stop(signal.SIGINT) == 0


def test_asked_twice_it_ends_at_once() -> None:
    with Up("--port", "0", "--brokers", "2").ready() as up:
        # Stopped by somebody else: it would hold up an orderly end.
        os.kill(up.brokers["1"]["pid"], signal.SIGSTOP)
        pids = up.pids()
        up.process.send_signal(signal.SIGTERM)
        assert up.event() == {"event": "stopping"}
        up.process.send_signal(signal.SIGTERM)
        assert up.wait() == 0
        assert not any(is_alive(pid) for pid in pids)


def test_it_ends_with_the_process_it_was_started_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        until_exit_of = ("--until-exit-of", str(other.pid))
        with Up("--port", "0", "--brokers", "1", *until_exit_of).ready() as up:
            other.kill()
            assert up.wait() == 0
            assert not up.directory.exists()


def test_a_killed_test_process_leaves_nothing() -> None:
    code = (
        "from kafkalike.testing import Cluster\n"
        "cluster = Cluster(brokers=2).start()\n"
        "print(cluster.pid, cluster.directory, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as test:
        assert test.stdout is not None
        pid, directory = test.stdout.readline().decode().split()
        test.kill()
    until(lambda: not is_alive(int(pid)), "the cluster is left")
    until(lambda: not pathlib.Path(directory).exists(), "its directory is left")


def test_config_file_and_overrides_reach_the_brokers(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "extra.properties"
    config.write_text("num.partitions=3\nlog.retention.hours=5\n")
    settings = ("--config", str(config), "--override", "num.partitions=4")
    with Up("--port", "0", "--brokers", "1", *settings).ready() as up:
        text = (up.directory / "broker-1" / "server.properties").read_text()
        assert "num.partitions=4" in text
        assert "log.retention.hours=5" in text
        assert up.stop() == 0


@pytest.mark.parametrize("mode", ["processes", "single"])
def test_settings_that_nobody_knows_are_named(tmp_path: pathlib.Path, mode: str) -> None:
    """Once, not once a broker; in the file and on the command line alike."""
    config = tmp_path / "extra.properties"
    config.write_text("log.retention.hour=5\nnum.partitions=2\n")
    settings = ["--config", str(config), "--override", "unknown.key=v"]
    extra = ["--single-process"] if mode == "single" else []
    with Up("--port", "0", "--brokers", "2", *settings, *extra).ready() as up:
        lines = [
            "Unknown configuration log.retention.hour; did you mean log.retention.hours?",
            "Unknown configuration unknown.key",
        ]
        assert up.facts["warnings"] == lines
        assert up.stop() == 0
        assert up.errors() == [f"warning: {line}" for line in lines]
    with (
        pytest.warns(UserWarning, match="did you mean log.retention.hours"),
        Cluster(1, config={"log.retention.hour": 5}) as cluster,
    ):
        assert cluster.brokers[1].state == "running"
    with Up("--port", "0", "--brokers", "3").ready() as up:
        assert up.facts["warnings"] == []
        assert up.stop() == 0
        assert up.errors() == []


def test_not_ready_before_it_is(tmp_path: pathlib.Path) -> None:
    """The control port answers 503 as long as a broker is missing."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    silent = socket.create_server(("127.0.0.1", 0))
    zookeeper = f"127.0.0.1:{silent.getsockname()[1]}"
    with silent, Up("--port", "0", "--control-port", str(port), "--zookeeper", zookeeper) as up:
        until(lambda: listens(f"127.0.0.1:{port}"), "no control port")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10)
        assert caught.value.code == 503
        assert up.stop() == 0
