"""`kafkalike up`: a whole local cluster until Ctrl-C."""

import argparse
import json
import pathlib
import sys
from typing import Any

from kafkalike.properties import PropertiesError, parse_properties

from . import cli

MAX_BROKERS = 100


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("up", help="run a whole local cluster until Ctrl-C")
    parser.add_argument("--brokers", type=int, default=3, help="how many (default: 3)")
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
        type=int,
        default=9092,
        help="port of the first broker, the others follow; 0 takes free ones (default: 9092)",
    )
    parser.add_argument(
        "--zookeeper",
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
        help="write the addresses here, as JSON, once every broker serves",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    from .local_cluster import PRELOAD, ClusterOptions
    from .spawner import Nursery

    if not 1 <= args.brokers <= MAX_BROKERS:
        raise cli.UsageError(f"--brokers: expected 1 to {MAX_BROKERS}, found {args.brokers}")
    if args.port and not 1 <= args.port <= cli.MAX_PORT - args.brokers:
        raise cli.UsageError(f"--port: expected 0, or room for {args.brokers}, found {args.port}")
    options = ClusterOptions(
        brokers=args.brokers,
        directory=args.dir,
        memory=args.memory,
        port=args.port,
        zookeeper=args.zookeeper,
        overrides=_overrides(args),
        log_level=args.log_level,
    )
    nursery = Nursery(PRELOAD)
    return _supervise(options, nursery, args)


def _overrides(args: argparse.Namespace) -> dict[str, str]:
    overrides: dict[str, str] = {}
    if args.config is not None:
        try:
            overrides.update(parse_properties(args.config.read_text(encoding="iso-8859-1")))
        except (OSError, PropertiesError) as error:
            raise cli.CommandError(f"--config: {args.config}: {error}") from error
    overrides.update(cli.parse_pairs("--override", args.override))
    for name in ("broker.id", "node.id", "listeners", "log.dirs", "log.dir", "zookeeper.connect"):
        if name in overrides:
            raise cli.UsageError(f"{name} is chosen for each broker and cannot be set for all")
    return overrides


def _supervise(options: Any, nursery: Any, args: argparse.Namespace) -> int:
    from kafkalike.runtime.reactor import install_reactor, make_runtime
    from kafkalike.runtime.tasks import as_deferred

    from .local_cluster import BrokerProcess, LocalCluster

    reactor = install_reactor()
    runtime = make_runtime(reactor)
    problems: list[str] = []

    def on_exit(broker: BrokerProcess) -> None:
        sys.stderr.write(f"{broker.name} ended with {broker.exit_code}; see {broker.log_path}\n")

    cluster = LocalCluster(options, nursery, runtime, reactor, on_exit)

    async def start() -> None:
        begin = runtime.clock.monotonic()
        try:
            await cluster.start()
        except (cli.CommandError, OSError) as error:
            problems.append(str(error))
            reactor.stop()
            return
        _announce(cluster, args, runtime.clock.monotonic() - begin)

    reactor.callWhenRunning(lambda: as_deferred(start()))
    reactor.addSystemEventTrigger("before", "shutdown", lambda: as_deferred(cluster.stop()))
    reactor.run()
    if problems:
        raise cli.CommandError(problems[0])
    return cli.DONE


def _announce(cluster: Any, args: argparse.Namespace, seconds: float) -> None:
    facts = {
        "event": "ready",
        "bootstrap_servers": cluster.bootstrap,
        "zookeeper": cluster.zookeeper,
        "directory": str(cluster.directory),
        "brokers": {
            str(b.id): {"address": b.address, "pid": b.pid} for b in cluster.brokers.values()
        },
        "seconds": round(seconds, 3),
    }
    if args.output == "json":
        print(json.dumps(facts), flush=True)
    else:
        print(
            f"{len(cluster.brokers)} brokers are ready after {seconds:.2f} s\n"
            f"bootstrap servers  {cluster.bootstrap}\n"
            f"zookeeper          {cluster.zookeeper}\n"
            f"directory          {cluster.directory}\n"
            "Ctrl-C stops them.",
            flush=True,
        )
    if args.ready_file is not None:
        temporary = args.ready_file.with_name(args.ready_file.name + ".tmp")
        temporary.write_text(json.dumps(facts) + "\n")
        temporary.replace(args.ready_file)
