"""Run the embedded coordination service as a process of its own, for tests.

    python serve.py --port 0 [--data-dir D] [--no-fsync] [--tick MS] [--max-buffer BYTES]
                    [--max-connections N] [--snapshot-every N] [--super DIGEST]

prints `ready PORT`, serves until SIGTERM, and exits 3 with the reason when its disk failed.
"""

import argparse
import logging
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data-dir")
    parser.add_argument("--no-fsync", action="store_true")
    parser.add_argument("--tick", type=int, default=2000)
    parser.add_argument("--max-buffer", type=int, default=4 << 20)
    parser.add_argument("--max-connections", type=int, default=0)
    parser.add_argument("--snapshot-every", type=int, default=100_000)
    parser.add_argument("--super")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    from twisted.internet.defer import Deferred

    from kafkalike.runtime.reactor import install_reactor, make_runtime
    from kafkalike.zk.server.server import CoordinationServer

    reactor = install_reactor()
    runtime = make_runtime(reactor)
    status = 0

    def failed(error: Exception) -> None:
        nonlocal status
        print(f"failed {error}", flush=True)
        status = 3
        reactor.stop()

    server = CoordinationServer(
        listen=reactor.listenTCP,
        clock=runtime.clock,
        random=runtime.random,
        threads=runtime.threads,
        disk=runtime.disk,
        data_dir=arguments.data_dir,
        port=arguments.port,
        fsync=not arguments.no_fsync,
        tick_time_ms=arguments.tick,
        max_buffer_bytes=arguments.max_buffer,
        max_client_connections=arguments.max_connections,
        snapshot_every=arguments.snapshot_every,
        super_digest=arguments.super,
        on_failure=failed,
    )

    async def run() -> None:
        try:
            await server.start()
        except Exception as error:
            failed(error)
            return
        print(f"ready {server.port}", flush=True)

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()))
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(server.stop()) if not status else None
    )
    reactor.run()
    sys.exit(status)


if __name__ == "__main__":
    main()
