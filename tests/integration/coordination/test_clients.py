"""Other people's clients on the embedded service: kazoo's own test suite, ZooKeeper's shell."""

import importlib.util
import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from .servers import HERE, embedded, need_zookeeper

SUITE_LIMIT_S = 900
NEEDS_LIBRARIES = ("gevent", "eventlet", "PureSASL", "on CI")
"""Why tests of the suite may be skipped beside our own list (`kazoo_cluster.SKIPPED`)."""


@pytest.mark.slow
@pytest.mark.timeout(SUITE_LIMIT_S + 60)
def test_kazoo_own_suite(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("kazoo.tests") is None:
        pytest.skip("the installed kazoo comes without its tests")
    report = tmp_path / "report.xml"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "kazoo_cluster"),
            *("-p", "no:cacheprovider", "-p", "no:twisted"),
            *("--rootdir", str(tmp_path), f"--junitxml={report}", "--pyargs", "kazoo.tests"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SUITE_LIMIT_S,
        check=False,
        text=True,
    )
    assert report.exists(), run.stdout[-3000:]
    passed, bad = 0, []
    for test in ElementTree.parse(report).iter("testcase"):
        name = f"{test.get('classname')}.{test.get('name')}"
        kinds = {child.tag: child.get("message") or "" for child in test}
        if "failure" in kinds or "error" in kinds:
            bad.append(f"{name}: {kinds.get('failure') or kinds.get('error')}")
        elif "skipped" in kinds:
            reason = kinds["skipped"]
            if not reason.startswith("embedded: ") and not any(
                library in reason for library in NEEDS_LIBRARIES
            ):
                bad.append(f"{name}: skipped, {reason}")
        else:
            passed += 1
    assert not bad, "\n".join(bad)
    assert passed > 280


SHELL_SESSION = """\
create /a hello
create -e /a2 x
create -s /a/s- y
create -c /container z
get /a
set -v 0 /a world
set -v 0 /a nope
ls -R /
addWatch -m PERSISTENT_RECURSIVE /a
create /a/b c
deleteall /a
addauth digest u:p
create /sec s auth::crdwa
getAcl /sec
getEphemerals
getAllChildrenNumber /
whoami
sync /
quit
"""


@pytest.mark.java
def test_zookeeper_shell(tmp_path: pathlib.Path) -> None:
    classpath = need_zookeeper()
    with embedded(tmp_path, "--data-dir", str(tmp_path / "data")) as server:
        run = subprocess.run(
            [
                *("java", "-Xmx128m", "-cp", classpath),
                *("org.apache.zookeeper.ZooKeeperMain", "-server", server.hosts),
            ],
            input=SHELL_SESSION,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
            text=True,
        )
    said = [line for line in run.stdout.splitlines() if line and not line.startswith("[zk:")]
    for line in (
        "Created /a",
        "Created /a2",
        "Created /a/s-0000000000",
        "KeeperErrorCode = Unimplemented for /container",
        "hello",
        "version No is not valid : /a",
        "/zookeeper/config",
        "WatchedEvent state:SyncConnected type:NodeCreated path:/a/b",
        "WatchedEvent state:SyncConnected type:NodeDeleted path:/a",
        "'digest,'u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=",
        "[/a2]",
        "5",
        "digest: u",
        "Sync is OK",
    ):
        assert any(line in heard for heard in said), f"{line!r} not in:\n{run.stdout}"
