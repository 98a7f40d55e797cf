"""`kafkalike-admin cluster describe`: who is there, who leads what, and what is in trouble."""

import argparse
from typing import Any, Final

from .. import cli
from .client import AdminClient, add_connection_flags, run_with_client

_NO_LEADER: Final = -1


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "cluster", help="show brokers, controller and trouble", description=__doc__
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    describe_parser = verbs.add_parser(
        "describe", help="brokers, controller, partitions in trouble"
    )
    add_connection_flags(describe_parser)
    cli.add_output_flag(describe_parser)


def run(args: argparse.Namespace) -> int:
    return run_with_client(args, lambda client: describe(client, args))


async def describe(client: AdminClient, args: argparse.Namespace) -> int:
    value = summarize(await client.metadata())
    if args.output == "json":
        cli.print_json(value)
        return cli.DONE
    controller = value["controller_id"]
    print(f"Cluster id:  {value['cluster_id']}")
    print(f"Controller:  {'none' if controller < 0 else controller}")
    print(
        f"Topics:      {value['topics']} with {value['partitions']} partitions,"
        f" {value['under_replicated']} under-replicated, {value['unavailable']} unavailable"
    )
    print()
    cli.print_table(
        ("BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "IN SYNC"),
        (
            (
                b["id"],
                f"{b['host']}:{b['port']}",
                b["rack"] or "-",
                "yes" if b["id"] == controller else "",
                b["leaders"],
                b["replicas"],
                b["in_sync"],
            )
            for b in value["brokers"]
        ),
    )
    if value["missing_brokers"]:
        print("\nNot there: " + ",".join(map(str, value["missing_brokers"])))
    return cli.DONE


def summarize(metadata: Any) -> dict[str, Any]:
    """What a Metadata answer of all topics says of the cluster."""
    partitions = [p for topic in metadata.topics for p in topic.partitions]
    brokers = []
    for b in sorted(metadata.brokers, key=lambda b: int(b.node_id)):
        brokers.append(
            {
                "id": b.node_id,
                "host": b.host,
                "port": b.port,
                "rack": b.rack,
                "leaders": sum(p.leader_id == b.node_id for p in partitions),
                "replicas": sum(b.node_id in p.replica_nodes for p in partitions),
                "in_sync": sum(b.node_id in p.isr_nodes for p in partitions),
            }
        )
    present = {b.node_id for b in metadata.brokers}
    assigned = {broker for p in partitions for broker in p.replica_nodes}
    return {
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "under_replicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
        "unavailable": sum(
            p.leader_id == _NO_LEADER or p.leader_id not in present for p in partitions
        ),
        "brokers": brokers,
        "missing_brokers": sorted(assigned - present),
    }
