"""`kafkalike zookeeper`: the embedded coordination service alone, for one host."""

import argparse
import pathlib

from . import cli


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("zookeeper", help="run the embedded coordination service alone")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=2181, help="0 takes a free one (default: 2181)")
    parser.add_argument(
        "--dir", type=pathlib.Path, help="keep the tree here (default: in memory only)"
    )
    parser.add_argument(
        "--no-fsync",
        action="store_true",
        help="answer before a write is on the device: faster, lost with a power cut",
    )
    parser.add_argument("--tick-time-ms", type=int, default=2000, help="as ZooKeeper's tickTime")


def run(args: argparse.Namespace) -> int:
    from kafkalike.runtime.reactor import install_reactor, make_runtime
    from kafkalike.runtime.tasks import as_deferred
    from kafkalike.zk.server.server import CoordinationServer

    if args.tick_time_ms < 1:
        raise cli.UsageError(f"--tick-time-ms: expected 1 or more, found {args.tick_time_ms}")
    reactor = install_reactor()
    runtime = make_runtime(reactor)
    if args.dir is not None:
        args.dir.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []

    def failed(error: Exception) -> None:
        problems.append(str(error))
        reactor.stop()

    server = CoordinationServer(
        listen=reactor.listenTCP,
        clock=runtime.clock,
        random=runtime.random,
        threads=runtime.threads,
        disk=runtime.disk if args.dir is not None else None,
        data_dir=None if args.dir is None else str(args.dir.resolve()),
        host=args.host,
        port=args.port,
        fsync=not args.no_fsync,
        tick_time_ms=args.tick_time_ms,
        on_failure=failed,
    )

    async def start() -> None:
        try:
            await server.start()
        except Exception as error:
            failed(error)
            return
        print(f"serving on {server.host}:{server.port}", flush=True)

    reactor.callWhenRunning(lambda: as_deferred(start()))
    reactor.addSystemEventTrigger("before", "shutdown", lambda: as_deferred(server.stop()))
    reactor.run()
    if problems:
        raise cli.CommandError(problems[0])
    return cli.DONE
