"""Guards that can be taken out, one at a time, to see whether the simulator misses them.

Each entry names the historical bug that its guard stands against, as in the table of known bugs of
this design, and the text that is replaced.  `family`: the directed scenarios that are tried; "" is
the general one.  An entry whose text is not found once in the code as it stands is out of date: the
test says so.
"""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Edit:
    """`old` stands once in `file` (a path from the root of the checkout) and becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(slots=True, frozen=True)
class Mutation:
    """One removed guard."""

    name: str
    bug: str
    what: str
    edits: tuple[Edit, ...]
    family: str = ""


_PARTITION = "broker/replica/partition.py"
_FETCHER = "broker/replica/fetcher.py"
_ROLES = "broker/replica/roles.py"
_LOG = "broker/log/log.py"
_PRODUCERS = "broker/log/producer_state.py"
_MEMBERSHIP = "broker/coordinator/membership.py"

MUTATIONS: tuple[Mutation, ...] = (
    # -- replicas: who has which records -------------------------------------------------------
    Mutation(
        "truncate-to-high-watermark",
        "KIP-101",
        "a new follower cuts its log at its high watermark instead of asking where it forks",
        (
            Edit(
                "broker/replica/fetchers.py",
                "if log.latest_epoch is None:",
                "if log.latest_epoch is not None or True:",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "no-divergence-check",
        "KIP-101",
        "a leader does not compare the follower's last epoch with its own history",
        (
            Edit(
                _PARTITION,
                "        if request.last_fetched_epoch >= 0:\n            fork",
                "        if request.last_fetched_epoch >= 1 << 30:\n            fork",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "unknown-epoch-is-not-a-fork",
        "KIP-279, KAFKA-6361",
        "a follower whose last epoch the leader does not know is only cut at the end of the log",
        (
            Edit(
                _PARTITION,
                "if found_epoch < last_epoch or end_offset < request.fetch_offset:",
                "if end_offset < request.fetch_offset:",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "missed-epoch-is-not-compared",
        "KAFKA-7164",
        "a follower that has missed an epoch does not compare its log with the leader's",
        (
            Edit(
                "broker/replica/follower.py",
                "            -1 if epoch is None else epoch,\n",
                "            -1 if epoch is None or self.leader_epoch > epoch + 1 else epoch,\n",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "isr-before-epoch-start",
        "KAFKA-7128",
        "a follower joins the ISR below the start of the leader's epoch",
        (
            Edit(
                _PARTITION,
                "            and replica.log_end_offset >= self.leader_epoch_start_offset\n",
                "",
            ),
        ),
        family="far-apart",
    ),
    Mutation(
        "isr-before-high-watermark",
        "KAFKA-7128",
        "a follower joins the ISR while it lacks committed records",
        (
            Edit(
                _PARTITION,
                "            replica.log_end_offset >= log.high_watermark\n"
                "            and replica.log_end_offset >= self.leader_epoch_start_offset\n"
                "            and ",
                "            ",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "leader-epoch-unchecked",
        "KIP-320, KAFKA-7747",
        "requests of an older or newer leader epoch are served",
        (
            Edit(
                _PARTITION,
                "if current_leader_epoch is not None and current_leader_epoch != self.leader_epoch:",
                "if current_leader_epoch is not None and current_leader_epoch < -1:",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "stale-fetch-answer-used",
        "KAFKA-7786, 13141, 13207",
        "a fetch answer is used though leader, epoch or offset changed since the request",
        (
            Edit(
                _FETCHER,
                "            told is not None\n"
                "            and told.fetch_offset == one.fetch_offset\n"
                "            and told.leader_epoch == one.leader_epoch\n"
                "            and one.delayed_until_s == NOT_DELAYED\n"
                "            and self._is_followed(one)\n"
                "            and partition.leader_epoch == one.leader_epoch\n",
                "            told is not None and partition.log is not None\n",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "divergence-moves-high-watermark",
        "KAFKA-14704",
        "a follower takes the high watermark of an answer that also tells it to cut its log",
        (
            Edit(
                _FETCHER,
                "        one.partition.truncate_to(target.offset)\n        one.fetch_offset =",
                "        one.partition.append_as_follower(b'', data.high_watermark, -1)\n"
                "        one.partition.truncate_to(target.offset)\n        one.fetch_offset =",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "reads-beyond-high-watermark",
        "KAFKA-9807, 9835, 9196",
        "a read that begins below the high watermark goes on beyond it",
        (
            Edit(
                _LOG,
                "                if bound < self.log_end_offset:\n"
                "                    limit = segment.position_for(bound)\n",
                "                pass\n",
            ),
        ),
    ),
    Mutation(
        "high-watermark-under-min-isr",
        "KAFKA-15583, KIP-966",
        "the high watermark moves while the ISR is smaller than min.insync.replicas",
        (
            Edit(
                _PARTITION,
                "if candidate <= log.high_watermark or len(self.isr) < self.effective_min_isr:",
                "if candidate <= log.high_watermark:",
            ),
        ),
        family="min-isr",
    ),
    Mutation(
        "acks-do-not-wait",
        "KAFKA-1367 and every bug of this kind",
        "acks=all is answered before the high watermark has passed the records",
        (
            Edit(
                "broker/replica/delayed.py",
                "if log.high_watermark <= result.last_offset:",
                "if log.high_watermark < 0:",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "follower-takes-appends",
        "KAFKA-7747",
        "a broker that does not lead any more appends what producers send",
        (
            Edit(
                _PARTITION,
                "        if log is None or self.leader != self._world.broker_id:\n"
                '            raise NotLeaderOrFollower(f"broker {self._world.broker_id} does not lead'
                ' {self}")\n        if required_acks',
                "        if log is None:\n"
                '            raise NotLeaderOrFollower(f"broker {self._world.broker_id} does not lead'
                ' {self}")\n        if required_acks',
            ),
        ),
        family="failover",
    ),
    Mutation(
        "end-told-too-early",
        "KIP-207",
        "a new leader answers for the end of the log before it knows what is committed",
        (
            Edit(
                _PARTITION,
                "            isolation is not FetchIsolation.LOG_END\n"
                "            and self.leader_epoch_start_offset > log.high_watermark\n",
                "            False\n",
            ),
        ),
        family="far-apart",
    ),
    # -- the ISR and the controller --------------------------------------------------------------
    Mutation(
        "pending-isr-ignored",
        "KIP-497, KAFKA-13091",
        "the high watermark does not wait for a follower that may be in the ISR already",
        (
            Edit(
                _PARTITION,
                "return proposal.isr if proposal is not None and proposal.expands else self.isr",
                "return self.isr",
            ),
            Edit(
                _PARTITION,
                "replica.broker_id in maximal_isr or self._may_join_soon(replica, log)",
                "replica.broker_id in maximal_isr",
            ),
        ),
        family="slow-isr",
    ),
    Mutation(
        "isr-counts-before-accepted",
        "KIP-497",
        "a shrunken ISR counts from the moment it is proposed",
        (
            Edit(
                _PARTITION,
                "return proposal.isr if proposal is not None and proposal.expands else self.isr",
                "return proposal.isr if proposal is not None else self.isr",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "high-watermark-not-tried-after-isr-change",
        "KAFKA-12686, 13254",
        "the high watermark is not looked at again when an ISR change is accepted",
        (
            Edit(
                _PARTITION,
                '        self.record("isr")\n        if self._try_advance_high_watermark():',
                '        self.record("isr")\n        if False:',
            ),
        ),
        family="lonely",
    ),
    Mutation(
        "repeated-isr-change-refused",
        "KAFKA-14144, KIP-497",
        "an ISR change that was applied, but whose answer was lost, is refused when sent again",
        (
            Edit(
                "controller/isr.py",
                "    if _same_but_for_partition_epoch(new, current):\n"
                "        return AlreadyDone(current)\n",
                "",
            ),
        ),
        family="lost-answers",
    ),
    Mutation(
        "lost-isr-answer-forgotten",
        "KAFKA-8836, 12751",
        "an ISR change without an answer is not sent again, and holds the partition's next one up",
        (
            Edit(
                "broker/replica/isr.py",
                "            if any(self._items.get(item.partition.topic_partition) is item for item in"
                " items):\n                self._send_later()\n            else:\n"
                "                self._send_soon()\n",
                "            pass\n",
            ),
        ),
        family="isr",
    ),
    Mutation(
        "departed-brokers-join-the-isr",
        "KIP-841, KAFKA-14140",
        "brokers that are gone or shutting down are taken into the ISR",
        (
            Edit(
                "controller/isr.py",
                "ineligible = [broker_id for broker_id in new.isr if broker_id not in live]",
                "ineligible = [broker_id for broker_id in new.isr if live is None]",
            ),
            Edit(
                "controller/isr.py",
                "if b not in current.isr and epoch != context.broker_epoch(b)",
                "if b not in current.isr and epoch < -1",
            ),
            Edit(
                _PARTITION,
                "            and replica.log_end_offset >= self.leader_epoch_start_offset\n"
                "            and self._world.is_alive(replica.broker_id)\n",
                "            and replica.log_end_offset >= self.leader_epoch_start_offset\n",
            ),
        ),
        family="late-joins",
    ),
    Mutation(
        "former-life-joins-the-isr",
        "KIP-903, KAFKA-15221",
        "what a broker fetched before it restarted counts for its new life",
        (
            Edit(
                _PARTITION,
                "        if broker_epoch < self.broker_epoch:\n            return False\n",
                "",
            ),
            Edit(
                "controller/isr.py",
                "if b not in current.isr and epoch != context.broker_epoch(b)",
                "if b not in current.isr and epoch < -1",
            ),
        ),
        family="late-joins",
    ),
    Mutation(
        "order-of-a-former-life",
        "KIP-380, KAFKA-7235, 9839",
        "a restarted broker obeys control requests that were meant for its former life",
        (
            Edit(
                _ROLES,
                "if broker_epoch != NO_BROKER_EPOCH and broker_epoch < self._broker_epoch():",
                "if broker_epoch != NO_BROKER_EPOCH and broker_epoch < -1:",
            ),
        ),
        family="late-orders",
    ),
    Mutation(
        "restart-unnoticed",
        "KIP-380, KAFKA-1120",
        "the controller does not notice a broker that comes back before its absence was seen",
        (
            Edit(
                "controller/brokers.py",
                "if registered[broker_id].epoch > known[broker_id].epoch",
                "if registered[broker_id].epoch < known[broker_id].epoch",
            ),
            # A broker that starts after its old session's end gives the controller time to see it.
            Edit(
                "broker/node.py",
                "        await self._across_sessions(parts.presence.wait_for_place)\n",
                "",
            ),
        ),
        family="restart",
    ),
    Mutation(
        "zombie-controller-writes",
        "KAFKA-6082",
        "writes of a controller are not tied to its epoch",
        (
            Edit(
                "zk/election.py",
                "fence: list[Op] = [Check(paths.CONTROLLER_EPOCH, epoch_zk_version)]",
                "fence: list[Op] = [Check(paths.CONTROLLER_EPOCH, -1)]",
            ),
        ),
        family="controller",
    ),
    Mutation(
        "zombie-controller-obeyed",
        "KAFKA-6082",
        "brokers obey a controller after they have heard of a newer one",
        (
            Edit(
                _ROLES,
                "        if controller_epoch < self.controller_epoch:\n"
                "            return StaleControllerEpoch.code\n",
                "",
            ),
            Edit(
                _ROLES,
                "        if partition is None or state.leader_epoch < local_epoch:\n"
                "            return StaleControllerEpoch.code\n",
                "        if partition is None or state.leader_epoch < local_epoch:\n"
                "            (to_lead if state.leader == self._broker_id else to_follow).append(one)\n"
                "            return NONE\n",
            ),
            Edit(
                _PARTITION,
                "Never truncates.\n"
                '        """\n'
                "        if state.partition_epoch < self.partition_epoch:\n"
                "            return False\n",
                'Never truncates."""\n',
            ),
            Edit(
                _PARTITION,
                "        A state of an older partition epoch changes nothing.\n"
                '        """\n'
                "        if state.partition_epoch < self.partition_epoch:\n"
                "            return False\n",
                '        """\n',
            ),
        ),
        family="late-orders",
    ),
    Mutation(
        "watch-not-set-again",
        "KAFKA-5502, 5879",
        "what changes while the brokers' registrations are read is not noticed",
        (
            Edit(
                "controller/brokers.py",
                "zk.get_children(paths.BROKER_IDS, arm))",
                "zk.get_children(paths.BROKER_IDS))",
            ),
        ),
        family="restart",
    ),
    Mutation(
        "late-stop-replica",
        "KIP-570, KAFKA-9539",
        "a late StopReplica ends a replica that was assigned again meanwhile",
        (
            Edit(
                _ROLES,
                "            or stopped.leader_epoch >= partition.leader_epoch\n",
                "            or stopped.leader_epoch >= -1\n",
            ),
        ),
        family="late-orders",
    ),
    Mutation(
        "old-files-for-a-new-topic",
        "KAFKA-12835, 14616, KIP-516",
        "a topic that was made anew is served from the files of the old one",
        (
            Edit(
                _ROLES,
                "if one.topic_id is not None and known_id is not None and one.topic_id !="
                " known_id:",
                "if one.topic_id is not None and known_id is None and one.topic_id == known_id:",
            ),
            Edit(
                "broker/log/manager.py",
                "                elif log.topic_id != topic_id:\n",
                "                elif log.topic_id is None:\n",
            ),
        ),
        family="recreated",
    ),
    Mutation(
        "move-ends-too-early",
        "KAFKA-9672, 9212",
        "a reassignment lets the old replicas go before the new ones are in sync",
        (
            Edit(
                "controller/reassignment.py",
                "in_sync = set(assignment.target) <= set(isr)",
                "in_sync = True",
            ),
        ),
        family="reassign",
    ),
    Mutation(
        "moves-of-deleted-topics",
        "KAFKA-9478, 6193, 10548",
        "a reassignment of a topic that is to be deleted goes on",
        (
            Edit(
                "controller/deletion.py",
                "        del context.reassigning[partition]\n",
                "        pass\n",
            ),
        ),
        family="reassign",
    ),
    Mutation(
        "move-waits-for-ever",
        "KAFKA-9478",
        "a reassignment does not go on when its broker comes back",
        (
            Edit(
                "controller/brokers.py",
                "        await self._reassigner.resume_towards(broker_ids)\n",
                "",
            ),
        ),
        family="reassign",
    ),
    Mutation(
        "deletion-waits-for-ever",
        "KAFKA-6193, 10548",
        "the deletion of a topic does not go on when its broker comes back",
        (
            Edit(
                "controller/brokers.py",
                "        await self._deleter.resume_for({replica.partition.topic: None for replica in"
                " replicas})\n",
                "",
            ),
        ),
        family="churn",
    ),
    Mutation(
        "deletion-forgets-absent-brokers",
        "KAFKA-9478",
        "a topic counts as deleted though a broker that has it is down",
        (
            Edit(
                "controller/deletion.py",
                "                    dead.append(replica)\n",
                "                    pass\n",
            ),
            Edit(
                "controller/deletion.py",
                "            if all(status is ReplicaStatus.DELETION_SUCCESSFUL for status in"
                " statuses):",
                "            if statuses and all(\n"
                "                status is ReplicaStatus.DELETION_SUCCESSFUL\n"
                "                or not self._context.is_online(r.broker_id, r.partition)\n"
                "                for status, r in zip(statuses, self._context.replicas_of(topic))\n"
                "            ) and topic in self._context.deletion_started:",
            ),
        ),
        family="churn",
    ),
    Mutation(
        "unclean-without-permission",
        "KAFKA-1028 and every bug of this kind",
        "a replica outside the ISR is elected though the topic forbids it",
        (
            Edit(
                "controller/leaders.py",
                "    if unclean_allowed and online and needs_unclean(context, partition, state.isr):",
                "    if online and needs_unclean(context, partition, state.isr):",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "any-replica-leads",
        "KAFKA-1097",
        "a leader is chosen from the living replicas, in the ISR or not",
        (
            Edit(
                "controller/leaders.py",
                "leader = next((replica for replica in online if replica in state.isr), None)",
                "leader = next((replica for replica in online), None)",
            ),
        ),
        family="failover",
    ),
    # -- the log -----------------------------------------------------------------------------------
    Mutation(
        "retention-beyond-high-watermark",
        "KAFKA-5634, 13194",
        "retention deletes what is not committed yet",
        (
            Edit(
                "broker/log/retention.py",
                "limit = bisect_right(ends, high_watermark)",
                "limit = len(ends)",
            ),
        ),
        family="retention",
    ),
    Mutation(
        "always-stopped-cleanly",
        "KAFKA-10471, 3968",
        "after a power loss the log is taken for whole",
        (
            Edit(
                "broker/log/dir_loader.py",
                "loaded = LoadedDir(was_clean=disk.exists(mark))",
                "loaded = LoadedDir(was_clean=True)",
            ),
            Edit(
                "broker/log/dir_loader.py",
                "        disk.remove(mark)\n",
                "        if disk.exists(mark):\n            disk.remove(mark)\n",
            ),
        ),
        family="power",
    ),
    Mutation(
        "clean-mark-stays",
        "KAFKA-10471",
        "the mark of a clean stop is not taken away when the broker starts",
        (
            Edit(
                "broker/log/dir_loader.py",
                "        disk.remove(mark)\n",
                "",
            ),
        ),
        family="power",
    ),
    Mutation(
        "torn-tail-kept",
        "KAFKA-9892",
        "recovery does not compare records with their checksum",
        (
            Edit(
                "broker/log/loader.py",
                "if not batch.crc_is_valid():",
                "if not batch.size:",
            ),
        ),
        family="power",
    ),
    Mutation(
        "producers-forgotten-at-start",
        "KAFKA-12520",
        "producers are not read from their snapshot when a log is loaded",
        (
            Edit(
                "broker/log/loader.py",
                "        if not self._snapshots and not self._ran_recovery:\n",
                "        if True:\n",
            ),
        ),
        family="producers",
    ),
    Mutation(
        "producers-not-rebuilt-after-truncation",
        "KAFKA-12520, KAFKA-9144",
        "what producers had written is remembered though it was cut off",
        (
            Edit(
                _LOG,
                "        if touches_producers:\n            self.rebuild_producers(offset)\n",
                "        if False:\n            self.rebuild_producers(offset)\n",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "epochs-not-truncated",
        "KIP-101",
        "leader epochs of records that were cut off stay in the epoch file",
        (
            Edit(
                _LOG,
                "        self._epochs.truncate_from_end(offset)\n        self._drop_snapshots(",
                "        self._drop_snapshots(",
            ),
            Edit(
                _LOG,
                "            self._epochs.truncate_from_end(offset)\n            return False\n",
                "            return False\n",
            ),
        ),
        family="failover",
    ),
    # -- idempotence ---------------------------------------------------------------------------------
    Mutation(
        "duplicates-not-recognised",
        "Jepsen Redpanda 21.10.1; KIP-98",
        "a batch that is sent again is not told apart from a new one",
        (
            Edit(
                _PRODUCERS,
                "            if known.first_sequence == first and known.last_sequence == last:\n",
                "            if known.first_sequence > last:\n",
            ),
        ),
        family="producers",
    ),
    Mutation(
        "sequences-unchecked",
        "Jepsen Redpanda 21.10.1; KIP-98",
        "gaps and repetitions in a producer's sequence are accepted",
        (
            Edit(
                _PRODUCERS,
                "        if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):\n",
                "        if sequence < -1:\n",
            ),
            Edit(
                _PRODUCERS,
                "            if known.first_sequence == first and known.last_sequence == last:\n",
                "            if known.first_sequence > last:\n",
            ),
        ),
        family="producers",
    ),
    Mutation(
        "followers-do-not-learn-producers",
        "KAFKA-12520",
        "a follower does not take up the producers of what it replicates",
        (
            Edit(
                _LOG,
                "        if with_producer:\n            self._update_producers(with_producer)\n",
                "",
            ),
        ),
        family="producers",
    ),
    Mutation(
        "producer-ids-given-twice",
        "KAFKA-3705 and Jepsen Redpanda 21.10.1",
        "two brokers are given the same block of producer ids",
        (
            Edit(
                "zk/producer_ids.py",
                "start = last.end + 1 if last else 0",
                "start = last.start if last else 0",
            ),
        ),
        family="producers",
    ),
    # -- groups ----------------------------------------------------------------------------------------
    Mutation(
        "old-generations-commit",
        "KAFKA-12890 and Jepsen Bufstream 0.1.0",
        "a member of an earlier generation commits offsets and sends heartbeats",
        (
            Edit(
                _MEMBERSHIP,
                "if code == NONE and caller.generation != group.generation:",
                "if code == NONE and caller.generation > group.generation:",
            ),
        ),
        family="groups",
    ),
    Mutation(
        "old-generations-sync",
        "KAFKA-9752, 14422",
        "a leader's assignment for an earlier generation is taken for the present one",
        (
            Edit(
                _MEMBERSHIP,
                "    if call.generation != group.generation:\n        return IllegalGeneration.code\n",
                "",
            ),
        ),
        family="late-syncs",
    ),
    Mutation(
        "silent-members-stay",
        "KAFKA-12890",
        "a member whose session has ended is not removed",
        (
            Edit(
                _MEMBERSHIP,
                '        self._remove(group, member, "its session ended")\n',
                "",
            ),
        ),
        family="groups",
    ),
    Mutation(
        "commits-answered-before-replicated",
        "KAFKA-15784",
        "a commit is acknowledged when the leader alone has it",
        (
            Edit(
                "broker/coordinator/groups.py",
                "            required_acks=config.offsets_commit_required_acks\n"
                "            if required_acks is None\n"
                "            else required_acks,\n",
                "            required_acks=1,\n",
            ),
        ),
        family="groups",
    ),
    Mutation(
        "shutting-down-replicas-counted",
        "KAFKA-15021; chaos run: acks=all hangs while a broker is away",
        "the high watermark waits for a follower that has shut down, for what it fetched before",
        (
            Edit(
                _PARTITION,
                "            self._world.monotonic(), log.log_end_offset, self._world.lag_time_max_s\n"
                "        ) and self._world.is_alive(replica.broker_id)\n",
                "            self._world.monotonic(), log.log_end_offset, self._world.lag_time_max_s\n"
                "        )\n",
            ),
            Edit(
                _PARTITION,
                "            now_s <= max(self.last_fetch_s, self.reset_s)\n",
                "            now_s <= self.last_fetch_s\n",
            ),
        ),
        family="shutdown",
    ),
    # -- what real machines have shown ---------------------------------------------------------------
    Mutation(
        "hole-after-a-cut",
        "chaos run: a flipped bit in a base offset",
        "a log that is cut goes on where it was told to end, though its last batch ends before",
        (
            Edit(
                _LOG,
                "        offset = max(min(offset, self._active.next_offset()), min(offset,"
                " self.log_start_offset))\n",
                "",
            ),
        ),
        family="flipped",
    ),
    Mutation(
        "any-base-offset-believed",
        "chaos run: a flipped bit in a base offset",
        "recovery believes a base offset at the end of a log that leaves a gap, and a cut does not"
        " look where the last batch ends",
        (
            Edit(
                "broker/log/loader.py",
                "leaves_gap = facts.base_offset > end_offset and",
                "leaves_gap = False and",
            ),
            Edit(
                _LOG,
                "        offset = max(min(offset, self._active.next_offset()), min(offset,"
                " self.log_start_offset))\n",
                "",
            ),
        ),
        family="flipped",
    ),
    Mutation(
        "restart-between-controllers-unnoticed",
        "KAFKA-7235",
        "a broker that restarted while there was no controller keeps its place in ISRs",
        (
            Edit(
                "controller/brokers.py",
                "        if later and len(later) < len(online):\n",
                "        if False:\n",
            ),
        ),
        family="between-controllers",
    ),
    Mutation(
        "start-ends-with-its-session",
        "chaos run: ZooKeeper away while a broker started",
        "a broker gives up its start when its session ends in the middle of it",
        (
            Edit(
                "broker/cluster/presence.py",
                "    for _ in range(START_SESSIONS):\n",
                "    for _ in range(0):\n",
            ),
        ),
        family="start",
    ),
    Mutation(
        "epochs-of-records-that-were-cut",
        "seed 41 of the family late-joins",
        "records that were cut and are back after a power loss pass for those of the newer epoch",
        (
            Edit(
                "broker/log/loader.py",
                "        if newer < len(self._epochs) and self._epochs[newer][1] <="
                " batch.base_offset:\n",
                "        if False:\n",
            ),
        ),
        family="cut-and-back",
    ),
    Mutation(
        "watches-of-an-ended-session",
        "seed 1586 of the general scenario",
        "what is followed since the old session ended, before there is a new one, is never heard of",
        (
            Edit(
                "zk/watches.py",
                "        self._expired = zk.state is SessionState.EXPIRED\n",
                "        self._expired = False\n",
            ),
        ),
        family="start",
    ),
    Mutation(
        "high-watermark-not-told-again",
        "random histories: a follower kept an old high watermark for ever",
        "a fetch session does not tell the high watermark again in a new epoch or after a divergence",
        (
            Edit(
                "broker/replica/fetch_session.py",
                "    if data.error_code != NONE or diverges:\n",
                "    if data.error_code != NONE:\n",
            ),
            Edit(
                "broker/replica/values.py",
                "        if request.current_leader_epoch != self.current_leader_epoch:\n",
                "        if request.current_leader_epoch < -1:\n",
            ),
        ),
        family="failover",
    ),
    Mutation(
        "dropped-follower-passed-over",
        "seed 657 of the general scenario",
        "a fetch session does not look again at a partition whose follower was dropped from the ISR",
        (
            Edit(
                _PARTITION,
                "        what = Changed.ISR if any(member not in decision.isr for member in self.isr)"
                " else 0\n",
                "        what = 0\n",
            ),
        ),
        family="dropped",
    ),
    # -- sessions ----------------------------------------------------------------------------------
    Mutation(
        "no-registration-after-expiry",
        "KAFKA-4229, 5473, 6517, 7165, 8532, 14887",
        "a broker whose session expired does not register again",
        (
            Edit(
                "broker/node.py",
                "        self._controller.after_new_session()\n",
                "",
            ),
        ),
        family="session",
    ),
    Mutation(
        "office-survives-the-session",
        "KAFKA-14887, 6082",
        "a controller whose session expired stays in office",
        (
            Edit(
                "broker/node.py",
                "            self._controller.before_session_expired()\n",
                "",
            ),
            Edit(
                "controller/controller.py",
                "            await self._zk.delete(paths.CONTROLLER, stat.version)\n",
                "            return\n",
            ),
            Edit(
                "controller/controller.py",
                '            self._resign(f"session expired, noticed by {cause}")\n',
                "            pass\n",
            ),
        ),
        family="session",
    ),
)
