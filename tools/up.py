"""`kafkalike up`: a whole local cluster until Ctrl-C.

Exit codes: 0 stopped as asked, 1 could not start or had to give up.  With `--output json` every
event is one line: `ready`, `broker_exited`, `stopping`.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import signal
import sys
from typing import Any, Final

from kafkalike.properties import PropertiesError, parse_properties

from . import cli

MAX_BROKERS: Final = 100

COMMON: Final = ("kafkalike.runtime.reactor", "kafkalike.runtime.tasks", "kafkalike.zk.client")
"""What supervisor and brokers both need; imported before they part."""
PRELOAD: Final = ("kafkalike.tools.local.child",)
"""What brokers need; imported by the nursery while the supervisor imports its own."""

RESERVED: Final = (
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "zookeeper.connect",
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("up", help="run a whole local cluster until Ctrl-C")
    parser.add_argument(
        "--brokers",
        type=cli.whole(1, MAX_BROKERS),
        help="how many (default: 3, or as many as the directory holds)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--dir",
        type=pathlib.Path,
        help="keep everything here; a second start on it goes on (default: thrown away at the end)",
    )
    where.add_argument(
        "--memory", action="store_true", help="throw everything away, and touch no disk meanwhile"
    )
    parser.add_argument(
        "--port",
        type=cli.port,
        default=9092,
        help="port of the first broker, the others follow; 0: those of the last start on the"
        " directory, or free ones (default: 9092)",
    )
    parser.add_argument(
        "--zookeeper",
        type=cli.zookeeper_addresses,
        metavar="HOST:PORT[,HOST:PORT][/PATH]",
        help="use this ensemble (default: the embedded coordination service)",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker setting for all brokers (may be repeated)",
    )
    parser.add_argument(
        "--config", type=pathlib.Path, help="file of broker settings for all brokers"
    )
    parser.add_argument(
        "--ready-file",
        type=pathlib.Path,
        help="write the addresses here, as JSON, once every broker serves; removed at the end",
    )
    parser.add_argument(
        "--control-port",
        type=cli.port,
        metavar="PORT",
        help="serve HTTP here for tests: readiness, and verbs that break things (0: any port)",
    )
    parser.add_argument(
        "--single-process",
        action="store_true",
        help="run all brokers in this process: less memory, virtual time",
    )
    parser.add_argument(
        "--until-exit-of",
        type=cli.whole(1),
        metavar="PID",
        help="stop when this process has ended, however it ended",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="how much goes to the broker.log of each broker (default: INFO)",
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    room = args.brokers or 1
    if args.port and not 1 <= args.port <= cli.MAX_PORT - room + 1:
        raise cli.UsageError(f"--port: expected 0, or room for {room}, found {args.port}")
    if args.single_process and args.zookeeper is not None:
        raise cli.UsageError("--single-process brings its own coordination: not with --zookeeper")
    overrides = _overrides(args)
    watched = _open_pid(args.until_exit_of)
    gc.disable()  # nothing that imports make is garbage
    nursery = None
    if not args.single_process:
        from .spawner import Nursery

        nursery = Nursery(COMMON, PRELOAD)
    supervisor = _Supervisor(args, overrides, nursery, watched)
    gc.freeze()
    gc.enable()
    return supervisor.run()


def _overrides(args: argparse.Namespace) -> dict[str, str]:
    overrides: dict[str, str] = {}
    if args.config is not None:
        try:
            overrides.update(parse_properties(cli.read_text("--config", args.config, "iso-8859-1")))
        except PropertiesError as error:
            raise cli.CommandError(f"--config: {args.config}: {error}") from error
    overrides.update(cli.parse_pairs("--override", args.override))
    for name in RESERVED:
        if name in overrides:
            raise cli.UsageError(f"{name} is chosen for each broker and cannot be set for all")
    return overrides


def _open_pid(pid: int | None) -> int | None:
    """A descriptor that becomes readable when the process has ended."""
    if pid is None:
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise cli.CommandError(f"--until-exit-of: there is no process {pid}") from None
    except OSError as error:  # a thread's number, or no more descriptors
        raise cli.CommandError(f"--until-exit-of: {pid}: {error.strerror}") from error


class _Supervisor:
    """The loop of the command: start, announce, wait for the end, stop."""

    def __init__(
        self, args: argparse.Namespace, overrides: dict[str, str], nursery: Any, watched: int | None
    ) -> None:
        from kafkalike.runtime.reactor import install_reactor, make_runtime

        from .local_cluster import ClusterOptions, LocalCluster

        self._args = args
        self._watched = watched
        self._problem: str | None = None
        self._stops = 0
        self._control: Any = None
        self._reactor = install_reactor()
        runtime = make_runtime(self._reactor)
        self._monotonic = runtime.clock.monotonic
        self._begin_s = self._monotonic()
        host: Any
        if nursery is None:
            from .local.in_process import InProcessHost

            host = InProcessHost(runtime, self._reactor)
        else:
            from .local.processes import ProcessHost

            host = ProcessHost(nursery, self._reactor, self._nursery_lost)
        self._cluster = LocalCluster(
            ClusterOptions(
                brokers=args.brokers,
                directory=args.dir,
                memory=args.memory,
                port=args.port,
                zookeeper=args.zookeeper,
                overrides=overrides,
                log_level=args.log_level,
                faults=args.control_port is not None,
            ),
            host,
            runtime,
            self._reactor,
            on_unexpected_exit=self._broker_exited,
            on_warning=cli.print_warning,
            on_coordination_failure=lambda error: self._give_up(f"coordination service: {error}"),
        )

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signalled)
        if self._args.ready_file is not None:
            self._args.ready_file.unlink(missing_ok=True)
        if self._watched is not None:
            self._reactor.addReader(_Watcher(self._watched, self._watched_ended))
        self._reactor.callWhenRunning(self._start)
        self._reactor.run(installSignalHandlers=False)
        if self._problem is not None:
            raise cli.CommandError(self._problem)
        return cli.DONE

    def _start(self) -> None:
        from kafkalike.runtime.tasks import as_deferred

        as_deferred(self._bring_up()).addErrback(self._failed)

    async def _bring_up(self) -> None:
        cluster = self._cluster
        starting = cluster.start()
        if self._args.control_port is not None:
            # Its imports take a while: brokers start meanwhile.
            from kafkalike.runtime.tasks import as_deferred

            started = as_deferred(starting)
            from .local.control_port import ControlPort

            control = ControlPort(cluster, self._stop)
            try:
                control.listen(self._args.control_port)
            except cli.CommandError:
                started.addErrback(lambda _: None)  # one reason to give up is enough
                raise
            self._control = control
            await started
        else:
            await starting
        if self._stops == 0:
            self._announce()

    def _failed(self, failure: Any) -> None:
        if self._stops == 0:
            expected = failure.check(cli.CommandError, OSError)
            if not expected:
                failure.printTraceback(sys.stderr)
            error = failure.value
            text = cli.describe_os_error(error) if isinstance(error, OSError) else str(error)
            self._give_up(text)

    def _give_up(self, problem: str) -> None:
        if self._problem is None and self._stops == 0:
            self._problem = problem
            self._stop(kill=True)

    def _nursery_lost(self) -> None:
        self._give_up("the process that makes the brokers has ended, and all brokers with it")

    def _signalled(self, number: int, _frame: object) -> None:
        self._reactor.callFromThread(self._stop)

    def _watched_ended(self) -> None:
        if self._stops == 0:
            self._tell(f"process {self._args.until_exit_of} has ended")
            self._stop()

    def _stop(self, *, kill: bool = False) -> None:
        """Stop in order; asked again, at once."""
        self._stops += 1
        if self._stops == 1:
            self._say({"event": "stopping"})
            if self._problem is None and self._cluster.brokers:
                count = len(self._cluster.brokers)
                self._tell(
                    f"stopping {count} broker{'s' if count > 1 else ''} in order"
                    f"{' and removing what they wrote' if self._args.dir is None else ''};"
                    " Ctrl-C again stops them at once"
                )
            self._remove_ready_file()
            if self._control is not None:
                self._control.close()
            self._cluster.stop(kill=kill).addBoth(self._stopped)
        else:
            if self._stops == 2:
                self._tell("stopping at once")
            self._cluster.stop(kill=True)

    def _stopped(self, _: object) -> None:
        self._remove_ready_file()
        with contextlib.suppress(Exception):
            self._reactor.stop()

    def _remove_ready_file(self) -> None:
        if self._args.ready_file is not None:
            self._args.ready_file.unlink(missing_ok=True)

    def _broker_exited(self, broker: Any) -> None:
        if self._stops:
            return
        self._say({"event": "broker_exited", "broker": broker.id, "code": broker.exit_code})
        sys.stderr.write(f"{broker.name} ended with {broker.exit_code}; see {broker.log_path}\n")

    def _tell(self, line: str) -> None:
        """For people, beside what is told to programs."""
        if self._args.output != "json":
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr, flush=True)

    def _say(self, event: dict[str, Any]) -> None:
        if self._args.output == "json":
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(event), flush=True)

    def _announce(self) -> None:
        cluster = self._cluster
        facts: dict[str, Any] = {
            "event": "ready",
            "bootstrap_servers": cluster.bootstrap,
            "zookeeper": cluster.zookeeper,
            "directory": str(cluster.directory),
            "pid": os.getpid(),
            "brokers": {
                str(b.id): {"address": b.address, "pid": b.pid} for b in cluster.brokers.values()
            },
            "control": None if self._control is None else self._control.url,
            "warnings": cluster.warnings,
            "seconds": round(self._monotonic() - self._begin_s, 3),
        }
        if self._args.ready_file is not None:
            path = self._args.ready_file
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_text(json.dumps(facts) + "\n")
            temporary.replace(path)
        self._say(facts)
        if self._args.output == "json":
            return
        lines = [
            f"{len(cluster.brokers)} broker{'s are' if len(cluster.brokers) > 1 else ' is'} ready"
            f" after {facts['seconds']:.2f} s",
            f"bootstrap servers  {cluster.bootstrap}",
            f"zookeeper          {cluster.zookeeper}",
            f"directory          {cluster.directory}",
        ]
        if self._control is not None:
            lines.append(f"control port       {self._control.url}")
        with contextlib.suppress(BrokenPipeError):
            print("\n".join([*lines, "Ctrl-C stops them."]), flush=True)


class _Watcher:
    """A process whose end is waited for, on the loop."""

    def __init__(self, pidfd: int, ended: Any) -> None:
        self._pidfd = pidfd
        self._ended = ended

    def fileno(self) -> int:
        return self._pidfd

    def logPrefix(self) -> str:
        return "kafkalike up"

    def doRead(self) -> Exception | None:
        self._ended()
        return EOFError("the process has ended")

    def connectionLost(self, reason: Any) -> None:
        """It has told what it had to tell."""
