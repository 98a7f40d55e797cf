"""`kafkalike zookeeper`: the embedded coordination service alone, and moving a tree between services.

    kafkalike zookeeper --port 2181 --dir DIR                run it
    kafkalike zookeeper export FILE --zookeeper HOSTS        a cluster's metadata out of any ZooKeeper
    kafkalike zookeeper export FILE --dir DIR                out of an embedded service that is stopped
    kafkalike zookeeper import FILE --zookeeper HOSTS        and into another
    kafkalike zookeeper import FILE --dir DIR

Brokers are stopped meanwhile.
"""

import argparse
import pathlib
from typing import Any

from kafkalike.runtime.ports import Runtime, StorageError

from . import cli
from .listeners import who_listens


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "zookeeper", help="run the embedded coordination service alone; move trees"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--port", type=cli.port, default=2181, help="0 takes a free one (default: 2181)"
    )
    parser.add_argument(
        "--dir", type=pathlib.Path, help="keep the tree here (default: in memory only)"
    )
    parser.add_argument(
        "--no-fsync",
        action="store_true",
        help="answer before a write is on the device: faster, lost with a power cut",
    )
    parser.add_argument(
        "--tick-time-ms", type=cli.whole(1), default=2000, help="as ZooKeeper's tickTime"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="export|import")
    for verb, text in (
        ("export", "write a cluster's persistent znodes to a file"),
        ("import", "create the znodes of such a file in an empty place"),
    ):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("file", type=pathlib.Path)
        where = one.add_mutually_exclusive_group(required=True)
        where.add_argument(
            "--zookeeper",
            type=cli.zookeeper_addresses,
            metavar="HOST:PORT[,HOST:PORT][/PATH]",
            help="a service that runs",
        )
        where.add_argument(
            "--dir",
            dest="stopped",
            type=pathlib.Path,
            help="directory of an embedded service that is stopped (DIR/coordination of kafkalike up)",
        )


def run(args: argparse.Namespace) -> int:
    return _serve(args) if args.verb is None else _copy(args)


def _copy(args: argparse.Namespace) -> int:
    from kafkalike.zk.client import ZkError

    from .local.tree_copy import (
        count_below_root,
        export_over_wire,
        import_over_wire,
        read_dump,
        write_dump,
    )
    from .local.zk_session import WireSession

    exporting = args.verb == "export"
    dump: Any = None if exporting else read_dump(args.file)
    if args.stopped is not None:
        dump, count = _copy_directory(args.stopped, dump)
    else:
        try:
            with WireSession(args.zookeeper) as session:
                if exporting:
                    dump = export_over_wire(session)
                    count = count_below_root(dump)
                else:
                    count = import_over_wire(session, dump)
        except (ZkError, ValueError) as error:
            raise cli.CommandError(f"{args.zookeeper}: {error}") from error
    if exporting:
        write_dump(args.file, dump)
    print(f"{count} znodes {'written to' if exporting else 'made from'} {args.file}")
    return cli.DONE


def _copy_directory(directory: pathlib.Path, dump: Any) -> tuple[Any, int]:
    """Export (dump None) or import; (the dump, how many znodes)."""
    from kafkalike.zk.server.server import CoordinationServer

    from .local.tree_copy import checked_nodes, count_below_root, on_directory
    from .loop import run_main

    if dump is None:
        if not directory.is_dir():
            raise cli.CommandError(f"{directory}: no such directory")
    else:
        checked_nodes(dump)
        directory.mkdir(parents=True, exist_ok=True)
    counts: list[int] = []

    async def work(server: CoordinationServer) -> Any:
        if dump is not None:
            counts.append(await server.import_tree(dump))
            return dump
        exported = server.export_tree()
        counts.append(count_below_root(exported))
        return exported

    result: list[Any] = []

    async def main(runtime: Runtime) -> int:
        try:
            result.append(await on_directory(runtime, directory, work))
        except (StorageError, ValueError) as error:
            raise cli.CommandError(f"{directory}: {error}") from error
        return cli.DONE

    run_main(main)
    return result[0], counts[0]


def _serve(args: argparse.Namespace) -> int:
    from twisted.internet.error import CannotListenError

    from kafkalike.runtime.reactor import install_reactor, make_runtime
    from kafkalike.runtime.tasks import as_deferred
    from kafkalike.zk.server.server import CoordinationServer

    reactor = install_reactor()
    runtime = make_runtime(reactor)
    if args.dir is not None:
        args.dir.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []

    def failed(error: Exception) -> None:
        problem = str(error)
        if isinstance(error, CannotListenError):
            problem = f"{args.host}:{args.port}: {error.socketError.strerror or error.socketError}"
            problem += f"{who_listens(args.port)}; --port takes another, --port 0 a free one"
        problems.append(problem)
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
        if args.dir is None:
            cli.print_note("the tree is in memory only; --dir keeps it")

    reactor.callWhenRunning(lambda: as_deferred(start()))
    reactor.addSystemEventTrigger("before", "shutdown", lambda: as_deferred(server.stop()))
    reactor.run()
    if problems:
        raise cli.CommandError(problems[0])
    return cli.DONE
