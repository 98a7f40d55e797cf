"""`kafkalike broker` whose log directories are full while `DIRECTORY.full` exists."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkalike.broker.handlers.request import Route
from kafkalike.broker.node import Node
from kafkalike.runtime.ports import Disk, Runtime, StorageError
from kafkalike.tools.broker import load_config
from kafkalike.tools.local.faults import FaultDisk
from kafkalike.tools.serve import run
from kafkalike.zk.kazoo_client import KazooZkClient
from tests.chaos.disks import MARK


class MarkedDisk(FaultDisk):
    def __init__(self, disk: Disk, directories: list[str]) -> None:
        super().__init__(disk)
        self._marks = [(f"{path}/", path + MARK) for path in directories]

    def check(self, path: str) -> None:
        for prefix, mark in self._marks:
            if path.startswith(prefix) and os.path.exists(mark):
                raise StorageError(f"{path}: No space left on device")


class Companion:
    def __init__(self, directories: list[str]) -> None:
        self._directories = directories

    def prepare(self, reactor: Any, runtime: Runtime, zk: KazooZkClient) -> Runtime:
        return replace(runtime, disk=MarkedDisk(runtime.disk, self._directories))

    def wrap_route(self, route: Route) -> Route:
        return route

    def started(self, node: Node) -> None:
        """Nothing more to do."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--ready-file", type=Path)
    args = parser.parse_args(arguments)
    config = load_config(args.file, [])
    return run(config, ready_file=args.ready_file, companion=Companion(list(config.log_dirs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
