"""Known bugs of this design and the tests that catch them; what `docs/history.md` says.

`python -m tests.history write` writes the page.  `python -m tests.history prove [BUG ...]` takes each
guard out of a copy of the package, one after the other, and runs the tests named for it: each of them
must fail.  `tests/unit/test_history.py` checks that the page is up to date and that the tests exist.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "history.md"
COPIED: Final = ("kafkalike", "zk", "controller", "broker", "tools", "tests", "setup.cfg")
LIMIT_S: Final = 480.0

REPLICA: Final = "tests/unit/replica/"
CONTROLLER: Final = "tests/unit/controller/"
LOG: Final = "tests/unit/log/"
COORDINATOR: Final = "tests/unit/coordinator/"
HANDLERS: Final = "tests/unit/handlers/"
INTEGRATION: Final = "tests/integration/"


@dataclass(frozen=True)
class Edit:
    """`code`, which stands once in `path`, becomes `without`."""

    path: str
    code: str
    without: str = ""


@dataclass(frozen=True)
class Guard:
    """What keeps the bug away, and the tests that fail without it."""

    edits: tuple[Edit, ...]
    catches: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One kind of bug: `also` are tests of it that no single guard was taken out for."""

    bugs: tuple[str, ...]
    wrong: str
    guards: tuple[Guard, ...] = ()
    also: tuple[str, ...] = ()
    note: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """All tests of the row, each once."""
        proven = [test for guard in self.guards for test in guard.catches]
        return tuple(dict.fromkeys((*proven, *self.also)))


def guard(path: str, code: str, without: str = "", *, by: Iterable[str]) -> Guard:
    return Guard((Edit(path, code, without),), tuple(by))


NOT_SERVED: Final = "Not served yet: there is no transaction coordinator."

ROWS: Final = (
    Row(
        ("KIP-101",),
        "A follower cuts its log to its own high watermark, which may be old: committed records are"
        " lost or differ.",
        (
            guard(
                "broker/replica/follower.py",
                "    return log.high_watermark if log.latest_epoch is None else log.log_end_offset\n",
                "    log.truncate_to(log.high_watermark)\n    return log.log_end_offset\n",
                by=[
                    REPLICA + "test_failover.py::"
                    "test_kip_101_follower_restart_before_it_knows_the_high_watermark",
                    REPLICA + "test_failover.py::test_random_histories",
                ],
            ),
            guard(
                "broker/replica/partition.py",
                "            fork = self._divergence(log, request)\n",
                "            fork = None\n",
                by=[
                    REPLICA + "test_failover.py::"
                    "test_kip_101_two_leaders_wrote_different_records_at_one_offset",
                ],
            ),
        ),
    ),
    Row(
        ("KIP-279", "KAFKA-6361"),
        "After two quick elections neither side knows the other's epoch, and the cut is made at the"
        " wrong offset.",
        (
            guard(
                "broker/replica/follower.py",
                "        return Truncation(min(own_end_offset, log_end_offset), False)\n",
                "        return Truncation(min(end_offset, log_end_offset), True)\n",
                by=[
                    REPLICA + "test_fetcher.py::test_diverging_epoch_truncates_to_the_fork",
                ],
            ),
            guard(
                "broker/replica/partition.py",
                "            fork = self._divergence(log, request)\n",
                "            fork = None\n",
                by=[
                    REPLICA + "test_failover.py::test_kip_279_fast_double_failover",
                    REPLICA + "test_fetch.py::test_divergence_is_told_instead_of_records",
                ],
            ),
        ),
        also=(REPLICA + "test_failover.py::test_kip_279_chain_of_empty_epochs",),
    ),
    Row(
        ("KAFKA-7164",),
        "A follower that missed an epoch of the same leader does not compare histories.",
        (
            guard(
                "broker/replica/follower.py",
                "            -1 if epoch is None else epoch,\n",
                "            -1,\n",
                by=[
                    REPLICA + "test_failover.py::"
                    "test_kafka_7164_follower_that_missed_an_epoch_still_truncates",
                ],
            ),
        ),
    ),
    Row(
        ("KAFKA-7128",),
        "A follower joins the ISR before it has reached the start of the leader's epoch.",
        (
            guard(
                "broker/replica/partition.py",
                "            and replica.log_end_offset >= self.leader_epoch_start_offset\n",
                by=[REPLICA + "test_isr.py::test_kafka_7128_follower_below_epoch_start_stays_out"],
            ),
        ),
    ),
    Row(
        ("KIP-320", "KAFKA-7747"),
        "Readers do not say which leader epoch they know: they read from a deposed leader, or do not"
        " notice that records they have seen are gone.",
        (
            guard(
                "broker/replica/partition.py",
                "        if current_leader_epoch is not None and current_leader_epoch != "
                "self.leader_epoch:\n",
                "        if False:\n",
                by=[
                    REPLICA + "test_fetch.py::test_leader_epochs",
                    REPLICA + "test_fetch.py::test_list_offsets_checks_epoch_and_role",
                    REPLICA + "test_fetch.py::test_offset_for_leader_epoch",
                ],
            ),
            guard(
                "broker/log/log.py",
                "        return self._epochs.end_offset_for(epoch, self.log_end_offset)\n",
                "        return epoch, self.log_end_offset + 1000\n",
                by=[INTEGRATION + "test_truncation_told.py::test_a_consumer_hears_of_a_truncation"],
            ),
        ),
    ),
    Row(
        ("KAFKA-7786", "KAFKA-13141", "KAFKA-13207"),
        "The answer to a fetch of an earlier epoch, or role, is used.",
        (
            guard(
                "broker/replica/fetcher.py",
                "            if one is None or not self._is_current(one):\n",
                "            if one is None:\n",
                by=[
                    REPLICA + "test_fetcher.py::"
                    "test_kafka_7786_answer_for_an_older_epoch_changes_nothing",
                    REPLICA + "test_fetcher.py::"
                    "test_kafka_13141_answer_with_diverging_epoch_for_an_older_epoch_changes_nothing",
                ],
            ),
            Guard(
                (
                    Edit(
                        "broker/replica/fetcher.py",
                        "            and partition.leader == self.leader\n",
                    ),
                    Edit(
                        "broker/replica/fetcher.py",
                        "            and partition.leader_epoch == one.leader_epoch\n"
                        "            and partition.log is not None\n",
                    ),
                    Edit(
                        "broker/replica/fetcher.py",
                        "            and self._is_followed(one)\n"
                        "            and partition.leader_epoch == one.leader_epoch\n",
                        "            and self._is_followed(one)\n",
                    ),
                    Edit(
                        "broker/replica/roles.py",
                        "            self._fetchers.remove([one.topic_partition for one in to_lead])"
                        "\n",
                    ),
                ),
                (REPLICA + "test_fetcher.py::test_answer_after_becoming_leader_changes_nothing",),
            ),
        ),
    ),
    Row(
        ("KAFKA-14704",),
        "A follower takes the high watermark from an answer that also tells it to cut.",
        (
            guard(
                "broker/replica/fetcher.py",
                "                    self._truncate(one, data)\n",
                "                    self._truncate(one, data)\n"
                "                    one.partition.append_as_follower(\n"
                "                        b'', data.high_watermark, data.log_start_offset\n"
                "                    )\n",
                by=[
                    REPLICA + "test_fetcher.py::"
                    "test_kafka_14704_diverging_answer_does_not_move_high_watermark_or_log_start",
                ],
            ),
        ),
    ),
    Row(
        ("KAFKA-9807", "KAFKA-9835", "KAFKA-9196"),
        "A read returns records at or above the bound that it names.",
        (
            guard(
                "broker/log/log.py",
                "                if bound < self.log_end_offset:\n"
                "                    limit = segment.position_for(bound)\n",
                "                pass\n",
                by=[
                    REPLICA + "test_fetch.py::test_kafka_9807_no_read_passes_the_bound_it_names",
                    LOG + "test_log.py::test_reads_are_bounded_by_the_high_watermark",
                ],
            ),
            guard(
                "broker/log/log.py",
                "            elif bound < self._bases[index + 1]:\n"
                "                limit = segment.position_for(bound)\n",
                by=[REPLICA + "test_fetch.py::test_kafka_9807_no_read_passes_the_bound_it_names"],
            ),
        ),
    ),
    Row(
        ("KAFKA-15583", "KIP-966"),
        "The high watermark moves while the ISR is below min.insync.replicas; then the last member"
        " loses its end and is elected all the same.",
        (
            guard(
                "broker/replica/partition.py",
                "        if candidate <= log.high_watermark or len(self.isr) < "
                "self.effective_min_isr:\n",
                "        if candidate <= log.high_watermark:\n",
                by=[REPLICA + "test_produce.py::test_high_watermark_is_frozen_under_min_isr"],
            ),
            guard(
                "controller/partitions.py",
                "        return await self._last_replica.safer(stored)\n",
                "        return {}\n",
                by=[
                    CONTROLLER + "test_last_replica.py::"
                    "test_a_follower_that_fell_behind_leads_in_the_same_life",
                    CONTROLLER + "test_last_replica.py::"
                    "test_a_broker_that_stopped_in_order_leads_after_its_restart",
                    CONTROLLER + "test_faults.py::"
                    "test_story_with_one_fault[last_replica_loses_records-killed, applied]",
                ],
            ),
            guard(
                "controller/last_replica.py",
                "        if left_in in (broker.epoch, broker.info.whole_logs.get(partition)):\n",
                "        if True:\n",
                by=[
                    CONTROLLER + "test_last_replica.py::test_who_restarted_otherwise_is_not_whole",
                    CONTROLLER + "test_last_replica.py::test_who_is_safer",
                ],
            ),
            guard(
                "controller/last_replica.py",
                " or min_isr.zxids != former.min_isr_zxids:\n",
                ":\n",
                by=[
                    CONTROLLER + "test_last_replica.py::"
                    "test_while_min_isr_was_1_the_last_one_may_have_acknowledged_alone",
                ],
            ),
            guard(
                "controller/last_replica.py",
                "            if min_isr.value < 2 or former is None or ",
                "            if former is None or ",
                by=[CONTROLLER + "test_last_replica.py::test_min_isr_that_is_1_now"],
            ),
            guard(
                "controller/last_replica.py",
                "        and broker_id in assignment.replicas\n",
                by=[
                    CONTROLLER + "test_last_replica.py::"
                    "test_a_replica_that_was_taken_away_is_forgotten",
                ],
            ),
            guard(
                "controller/last_replica.py",
                "        return current.leader_epoch - told in (0, 1)\n",
                "        return True\n",
                by=[CONTROLLER + "test_last_replica.py::test_who_is_short"],
            ),
            guard(
                "controller/partitions.py",
                "            elif self._is_led(leader, partition):\n",
                "            elif self._context.is_online(leader, partition):\n",
                by=[
                    CONTROLLER + "test_last_replica.py::"
                    "test_the_leader_restarts_while_there_is_no_controller",
                ],
            ),
            guard(
                "controller/last_replica.py",
                " or (new.leader in new.isr and is_short(context, partition, old)):\n",
                ":\n",
                by=[
                    CONTROLLER + "test_last_replica.py::"
                    "test_the_election_of_a_shorter_log_makes_the_others_nothing_special",
                    CONTROLLER + "test_last_replica.py::test_who_restarted_otherwise_is_not_whole",
                ],
            ),
            guard(
                "broker/cluster/presence.py",
                "        self.standing = Standing(short_logs=self.standing.short_logs)\n",
                by=["tests/unit/cluster/test_standing.py::test_the_registration_carries_them_once"],
            ),
            guard(
                "broker/log/manager.py",
                "            and (stopped_in := self._homes[log.parent_dir].stopped_in) >= 0\n",
                "            and (stopped_in := max(h.stopped_in for h in self._homes.values()))\n",
                by=[
                    LOG + "test_standing.py::"
                    "test_an_empty_disk_in_the_place_of_another_says_nothing_of_its_logs",
                ],
            ),
        ),
        also=(
            "tests/simulation/test_last_replica.py::test_nothing_acknowledged_is_lost",
            "tests/simulation/test_last_replica.py::test_without_the_defence_the_same_loses_records",
            INTEGRATION + "test_last_replica.py::test_who_has_everything_is_elected",
            INTEGRATION + "test_last_replica.py::test_switched_off_it_is_as_with_kafka",
            INTEGRATION + "test_last_replica.py::test_a_controller_of_kafka_reads_what_ours_wrote",
        ),
    ),
    Row(
        ("KAFKA-15021",),
        "A replica that is shutting down, out of the ISR and no longer fetching, holds the high"
        " watermark back.",
        (
            guard(
                "broker/replica/partition.py",
                "            now_s <= max(self.last_fetch_s, self.reset_s)\n",
                "            now_s <= self.last_fetch_s\n",
                by=[
                    REPLICA + "test_failover.py::test_kafka_15021_shutting_down_replica_does_not"
                    "_count_for_what_it_fetched_before",
                ],
            ),
            guard(
                "broker/replica/partition.py",
                "        ) and self._world.is_alive(replica.broker_id)\n",
                "        )\n",
                by=[REPLICA + "test_isr.py::test_its_death_sets_the_high_watermark_free"],
            ),
        ),
        also=(
            REPLICA + "test_failover.py::"
            "test_kafka_15021_shutting_down_replica_does_not_hold_up_acknowledgements",
        ),
    ),
    Row(
        ("KIP-380", "KAFKA-7235", "KAFKA-9839"),
        "A restarted broker obeys orders meant for its former life, or refuses those for the new one.",
        (
            guard(
                "broker/replica/roles.py",
                " and broker_epoch < self._broker_epoch():\n",
                " and False:\n",
                by=[
                    REPLICA + "test_roles.py::"
                    "test_broker_epoch_of_a_former_life_is_refused_and_a_newer_one_accepted",
                ],
            ),
            guard(
                "broker/replica/roles.py",
                " and broker_epoch < self._broker_epoch():\n",
                " and broker_epoch != self._broker_epoch():\n",
                by=[
                    REPLICA + "test_roles.py::"
                    "test_broker_epoch_of_a_former_life_is_refused_and_a_newer_one_accepted",
                ],
            ),
            guard(
                "broker/handlers/control.py",
                "            await self._registered()\n"
                "            unknown = self._topics_without_log(request)\n",
                "            unknown = self._topics_without_log(request)\n",
                by=[
                    HANDLERS + "test_fetch_and_offsets.py::"
                    "test_orders_wait_until_the_broker_has_an_epoch",
                ],
            ),
            guard(
                "controller/brokers.py",
                "                if registered[broker_id].epoch > known[broker_id].epoch\n",
                "                if False\n",
                by=[CONTROLLER + "test_plans.py::test_new_bounced_and_dead_brokers"],
            ),
            guard(
                "controller/brokers.py",
                "        if later and len(later) < len(online):\n",
                "        if False:\n",
                by=[
                    CONTROLLER + "test_old_bugs.py::"
                    "test_kafka_7235_a_restart_between_two_controllers_is_noticed",
                    CONTROLLER + "test_old_bugs.py::test_who_restarted_unnoticed",
                ],
            ),
        ),
        also=(
            CONTROLLER + "test_requests.py::test_epoch_of_a_broker_that_came_back_in_the_meantime",
        ),
    ),
    Row(
        ("KIP-903", "KAFKA-15221"),
        "A follower that restarted, perhaps without the end of its log, joins the ISR for what it had"
        " fetched before.",
        (
            guard(
                "broker/replica/partition.py",
                " and replica.admits(follower_epoch):\n",
                ":\n",
                by=[REPLICA + "test_placement.py::test_fetch_of_a_former_life_does_not_count"],
            ),
            guard(
                "broker/replica/isr.py",
                "broker_id=replica, broker_epoch=proposal.epoch_of(replica)\n",
                "broker_id=replica\n",
                by=[
                    REPLICA + "test_old_bugs.py::"
                    "test_kip_903_a_fetch_of_a_former_life_brings_nobody_into_the_isr",
                ],
            ),
            guard(
                "controller/isr.py",
                "        if b not in current.isr and epoch != context.broker_epoch(b)\n",
                "        if False\n",
                by=[
                    CONTROLLER + "test_isr.py::"
                    "test_who_is_added_must_have_caught_up_in_its_present_life",
                ],
            ),
        ),
    ),
    Row(
        ("KIP-841", "KAFKA-14140"),
        "A replica that is gone or shutting down enters the ISR again.",
        (
            guard(
                "controller/isr.py",
                "    ineligible = [broker_id for broker_id in new.isr if broker_id not in live]\n",
                "    ineligible: list[int] = []\n",
                by=[CONTROLLER + "test_isr.py::test_row"],
            ),
        ),
    ),
    Row(
        (
            "KIP-497",
            "KAFKA-8836",
            "KAFKA-12686",
            "KAFKA-12751",
            "KAFKA-13091",
            "KAFKA-13254",
            "KAFKA-14144",
        ),
        "ISR changes that are under way: the pending state is lost, the high watermark passes a"
        " member that the controller may already have added or is not looked at again, an answer that"
        " is lost stops the partition.",
        (
            guard(
                "broker/replica/partition.py",
                "        return proposal.isr if proposal is not None and proposal.expands else "
                "self.isr\n",
                "        return self.isr\n",
                by=[
                    REPLICA + "test_failover.py::"
                    "test_high_watermark_covers_a_follower_that_the_controller_may_have_added",
                ],
            ),
            guard(
                "broker/replica/partition.py",
                "        if self.proposal is not proposal:\n            return False\n",
                by=[
                    REPLICA + "test_isr.py::"
                    "test_late_answer_to_a_replaced_proposal_changes_nothing",
                ],
            ),
            guard(
                "broker/replica/partition.py",
                '        self.record("isr")\n        if self._try_advance_high_watermark():\n',
                '        self.record("isr")\n        if False:\n',
                by=[
                    REPLICA + "test_isr.py::test_isr_commit_checks_the_high_watermark_again",
                ],
            ),
            Guard(
                (
                    Edit(
                        "broker/replica/isr.py",
                        "        if self._stopped or self._in_flight:\n",
                        "        if self._stopped:\n",
                    ),
                    Edit("broker/replica/isr.py", "        if self._in_flight or ", "        if "),
                ),
                (REPLICA + "test_isr.py::test_one_request_in_flight_the_rest_gathers",),
            ),
            guard(
                "broker/replica/isr.py",
                "                self._send_later()\n",
                "                pass\n",
                by=[
                    REPLICA + "test_isr.py::test_no_answer_at_all_is_sent_again",
                    REPLICA + "test_failover.py::"
                    "test_lost_answer_to_an_isr_change_does_not_stop_the_partition",
                ],
            ),
            guard(
                "controller/isr.py",
                "    if _same_but_for_partition_epoch(new, current):\n",
                "    if False:\n",
                by=[CONTROLLER + "test_isr.py::test_row"],
            ),
        ),
    ),
    Row(
        ("KAFKA-6082",),
        "A controller that was frozen and replaced goes on writing when it wakes up.",
        (
            guard(
                "zk/election.py",
                "    fence: list[Op] = [Check(paths.CONTROLLER_EPOCH, epoch_zk_version)]\n",
                "    fence: list[Op] = [Check(paths.CONTROLLER_EPOCH, -1)]\n",
                by=[
                    CONTROLLER + "test_world.py::test_zombie_changes_nothing",
                    "tests/contract/test_zk_operations.py::"
                    "test_fenced_writes_by_a_replaced_controller_change_nothing",
                ],
            ),
        ),
        also=(
            INTEGRATION + "test_three_brokers.py::"
            "test_a_frozen_controller_wakes_up_as_an_ordinary_broker",
        ),
    ),
    Row(
        ("KAFKA-5502", "KAFKA-5879"),
        "The controller acts on what it saw when the watch fired.",
        (
            guard(
                "controller/brokers.py",
                "        registered = await self._read_registrations()\n"
                "        changes = plan_broker_change",
                "        seen = self.__dict__.setdefault('seen', [])\n"
                "        registered = seen.pop() if seen else await self._read_registrations()\n"
                "        seen.append(registered)\n"
                "        changes = plan_broker_change",
                by=[
                    CONTROLLER + "test_old_bugs.py::"
                    "test_kafka_5502_the_controller_acts_on_what_is_there_when_it_looks",
                ],
            ),
            guard(
                "controller/events.py",
                '    """Children of `/brokers/ids` changed."""\n',
                '    """Children of `/brokers/ids` changed."""\n\n'
                "    names: tuple[str, ...] = ()\n",
                by=[
                    CONTROLLER + "test_old_bugs.py::"
                    "test_kafka_5502_what_a_watch_reports_carries_no_state",
                ],
            ),
        ),
        also=("tests/contract/test_zk_operations.py::test_watch_sets_lose_nothing",),
    ),
    Row(
        ("KIP-570", "KAFKA-9539"),
        "A late order to delete destroys a replica that was assigned again meanwhile.",
        (
            guard(
                "broker/replica/roles.py",
                "            or stopped.leader_epoch >= partition.leader_epoch\n",
                "            or True\n",
                by=[
                    REPLICA + "test_roles.py::"
                    "test_late_stop_does_not_destroy_a_replica_assigned_again",
                ],
            ),
        ),
    ),
    Row(
        ("KIP-516", "KAFKA-12835", "KAFKA-14616"),
        "A topic's id is lost, or a topic that was made anew is served from the files of the old one.",
        (
            guard(
                "broker/replica/roles.py",
                "        if one.topic_id is not None and known_id is not None and "
                "one.topic_id != known_id:\n",
                "        if False:\n",
                by=[REPLICA + "test_roles.py::test_checks_in_order"],
            ),
            guard(
                "broker/replica/reading.py",
                "    if known is not None and known != topic_id:\n",
                "    if False:\n",
                by=[REPLICA + "test_fetch.py::test_topic_id_of_a_former_topic"],
            ),
            guard(
                "broker/log/manager.py",
                "                elif log.topic_id != topic_id:\n",
                "                elif False:\n",
                by=[LOG + "test_manager.py::test_topic_ids_are_checked_and_learned"],
            ),
            guard(
                "broker/log/manager.py",
                "                    self._set_topic_id(log, topic_id)\n",
                "                    pass\n",
                by=[LOG + "test_manager.py::test_topic_ids_are_checked_and_learned"],
            ),
        ),
        also=(
            LOG + "test_manager.py::test_stray_logs_are_kept_but_not_loaded",
            CONTROLLER + "test_world.py::test_topic_recreated_after_deletion_is_another_topic",
            INTEGRATION + "test_three_brokers.py::test_deletion_waits_for_a_broker_that_is_away",
        ),
    ),
    Row(
        ("KAFKA-9672", "KAFKA-9212"),
        "During a reassignment the ISR holds brokers that hold no replica, or leaders keep what is no"
        " longer so.",
        (
            guard(
                "broker/replica/partition.py",
                "            for broker_id in self.replicas\n"
                "            if broker_id != self._world.broker_id\n",
                "            for broker_id in {*known, *self.replicas}\n"
                "            if broker_id != self._world.broker_id\n",
                by=[
                    REPLICA + "test_roles.py::"
                    "test_kafka_9672_replica_that_was_moved_away_no_longer_counts",
                ],
            ),
            guard(
                "controller/isr.py",
                "    ineligible += [b for b in new.isr if b not in replicas and b not in "
                "current.isr]\n",
                by=[CONTROLLER + "test_isr.py::test_row"],
            ),
            guard(
                "controller/reassignment.py",
                "            self._term.batch.add_leader_and_isr(assignment.origin, partition, "
                "is_new=False)\n",
                by=["tests/transcripts/test_controller_stories.py::test_story"],
            ),
        ),
        also=(CONTROLLER + "test_faults.py::test_story_with_one_fault",),
        note="Each story of `test_faults.py` is told once for every operation of ZooKeeper, with a"
        " crash of the controller there among the six kinds of fault.",
    ),
    Row(
        ("KAFKA-9478", "KAFKA-6193", "KAFKA-10548"),
        "Reassignments that never end, deletions that are stuck.",
        (
            guard(
                "controller/reassignment.py",
                "        await self._drop_zk_targets(\n"
                "            lambda partition, target: partition in targets and target == "
                "targets[partition].replicas\n        )\n",
                by=["tests/transcripts/test_controller_stories.py::test_story"],
            ),
            guard(
                "controller/office.py",
                "                await self.reassigner.drop_requests_of_deleted()\n",
                by=[CONTROLLER + "test_world.py::test_deletion_ends_a_reassignment"],
            ),
            guard(
                "controller/deletion.py",
                "            self._context.ineligible.pop(topic, None)\n",
                "            pass\n",
                by=[
                    CONTROLLER + "test_world.py::"
                    "test_a_broker_that_refuses_deletion_delays_it_until_it_restarts",
                    "tests/transcripts/test_controller_stories.py::test_story",
                ],
            ),
        ),
        also=(
            CONTROLLER + "test_faults.py::test_story_with_one_fault",
            CONTROLLER + "test_random.py::test_history_comes_to_rest",
        ),
    ),
    Row(
        ("KAFKA-5634", "KAFKA-13194"),
        "Retention or compaction takes records that are not committed or not decided.",
        (
            guard(
                "broker/log/cleaner.py",
                "        uncleanable = min(log.last_stable_offset, log.segments[-1].base_offset)\n",
                "        uncleanable = log.segments[-1].base_offset\n",
                by=[
                    LOG + "test_cleaner.py::test_nothing_above_the_high_watermark_is_cleaned",
                    LOG + "test_old_bugs.py::"
                    "test_kafka_13194_compaction_stays_below_what_is_committed",
                ],
            ),
            guard(
                "broker/log/clean_job.py",
                "    if batch.base_offset >= job.first_uncleanable:\n",
                "    if False:\n",
                by=[
                    LOG + "test_old_bugs.py::"
                    "test_kafka_13194_compaction_stays_below_what_is_committed",
                ],
            ),
            guard(
                "broker/log/retention.py",
                "    limit = bisect_right(ends, high_watermark)\n",
                "    limit = bisect_right(ends, log_end_offset)\n",
                by=[LOG + "test_log.py::test_retention_keeps_what_is_above_the_high_watermark"],
            ),
        ),
    ),
    Row(
        ("KAFKA-8351", "KAFKA-13727", "KAFKA-14055"),
        "Compaction drops a transaction's marker while its records are there, or because a record's"
        " key looks like a marker's.",
        (
            guard(
                "broker/log/clean_job.py",
                "            if not batch.is_control and not _is_kept(",
                "            if not _is_kept(",
                by=[
                    LOG + "test_cleaner.py::test_readers_see_the_same_before_and_after",
                ],
            ),
            guard(
                "broker/log/clean_job.py",
                "        drop_all = marks_empty and expired\n",
                "        drop_all = True\n",
                by=[
                    LOG + "test_cleaner.py::test_readers_see_the_same_before_and_after",
                    LOG + "test_cleaner.py::"
                    "test_markers_stay_while_they_have_data_and_then_until_their_horizon",
                ],
            ),
        ),
        also=(LOG + "test_kafkas_compaction.py::test_the_cleaner_decides_as_kafkas",),
    ),
    Row(
        ("KAFKA-10471", "KAFKA-12520", "KAFKA-3968", "KAFKA-9892"),
        "The mark of a clean stop is a lie, producers are forgotten, names or snapshots were never"
        " synced.",
        (
            guard(
                "broker/log/dir_loader.py",
                "        disk.remove(mark)\n",
                "        pass\n",
                by=[LOG + "test_manager.py::test_a_crash_while_loading_counts_as_unclean"],
            ),
            guard(
                "broker/log/log.py",
                "            disk.sync_dir(self.dir)\n        return self\n",
                "        return self\n",
                by=[
                    LOG + "test_recovery.py::"
                    "test_a_crash_at_any_operation_loses_nothing_that_was_safe",
                ],
            ),
            guard(
                "broker/log/log.py",
                "                file.sync()\n",
                "                pass\n",
                by=[
                    LOG + "test_recovery.py::"
                    "test_a_crash_at_any_operation_loses_nothing_that_was_safe",
                ],
            ),
            guard(
                "broker/log/log.py",
                "        self._producers.map_end_offset = base_offset\n"
                "        self._take_snapshot()\n",
                "        self._producers.map_end_offset = base_offset\n",
                by=[
                    LOG + "test_log.py::test_rolling_by_size_trims_indexes_and_snapshots_producers"
                ],
            ),
        ),
        also=(
            LOG + "test_manager.py::test_the_mark_is_the_last_thing_written",
            LOG + "test_cleaner.py::test_a_crash_at_any_operation_keeps_the_newest_values",
            LOG + "test_recovery.py::test_a_crash_at_any_operation_of_a_recovery_is_recovered_from",
        ),
    ),
    Row(
        ("KAFKA-10778",),
        "A log goes on taking records after an error of the disk.",
        (
            guard(
                "broker/log/directory.py",
                "        if self.failure is not None:\n"
                '            raise KafkaStorageError(f"Log directory {self.path} is offline")\n',
                "        return\n",
                by=[LOG + "test_log.py::test_after_an_error_of_the_disk_every_append_fails"],
            ),
        ),
    ),
    Row(
        ("KAFKA-9144",),
        "A producer is forgotten while its transaction is open, and with it the coordinator's epoch.",
        (
            guard(
                "broker/log/producer_state.py",
                "            if entry.current_txn_first_offset == NO_OFFSET\n            and now_ms",
                "            if now_ms",
                by=[
                    LOG + "test_producer_state.py::"
                    "test_silent_producers_expire_but_never_inside_a_transaction",
                ],
            ),
            guard(
                "broker/log/producer_state.py",
                "        if marker is not None and marker.coordinator_epoch < "
                "entry.coordinator_epoch:\n",
                "        if False:\n",
                by=[LOG + "test_producer_state.py::test_sequences_of_events"],
            ),
        ),
    ),
    Row(
        ("KAFKA-9777", "KAFKA-10080", "KAFKA-16352"),
        "Two completions of one transaction race: markers are written twice, or it is never complete.",
        note=NOT_SERVED,
    ),
    Row(
        ("KAFKA-14884", "KAFKA-14920", "KIP-890 part 1"),
        "Records that arrive behind the marker open a transaction that nobody ends.",
        (
            guard(
                "broker/log/producer_state.py",
                "            and not self._is_verified(batch.producer_id, guard)\n",
                "            and False\n",
                by=[
                    LOG + "test_producer_state.py::"
                    "test_a_transaction_needs_a_guard_where_verification_is_on",
                    LOG + "test_producer_state.py::test_a_marker_takes_the_guard_away",
                ],
            ),
        ),
        note="The log's part. " + NOT_SERVED + " So nobody asks it to verify.",
    ),
    Row(
        ("KIP-664",),
        "A transaction that nobody will end cannot be found or aborted.",
        note=NOT_SERVED + " DescribeProducers tells what the log knows.",
    ),
    Row(
        ("Jepsen, Bufstream 0.1.0: EndTxn",),
        "A delayed EndTxn ends the next transaction of its producer.",
        note=NOT_SERVED,
    ),
    Row(
        ("Jepsen, Bufstream 0.1.0: records",),
        "Clients that are stuck, offsets of zero from nowhere, acknowledged records that are gone"
        " without any fault.",
        also=(
            REPLICA + "test_failover.py::test_random_histories",
            INTEGRATION + "test_three_brokers.py::"
            "test_a_killed_controller_is_replaced_and_nothing_is_lost",
            INTEGRATION + "test_three_brokers.py::"
            "test_a_rolling_restart_loses_nothing_and_always_has_a_leader",
        ),
        note="Whole runs with checks, not single guards.",
    ),
    Row(
        ("Jepsen, Redpanda 21.10.1",),
        "Duplicates of idempotent producers, offsets that contradict each other, aborted records that"
        " are read, under freezing and killing.",
        (
            guard(
                "broker/log/log.py",
                "                if from_client and (known := producers.find_duplicate(batch)) is "
                "not None:\n",
                "                if False:\n",
                by=[
                    LOG + "test_producer_state.py::"
                    "test_duplicates_of_the_last_five_are_answered_with_their_original_offsets",
                ],
            ),
        ),
        also=(
            INTEGRATION + "testing/test_verbs.py::test_a_lost_acknowledgement_does_not_duplicate",
            INTEGRATION + "test_three_brokers.py::"
            "test_a_frozen_controller_wakes_up_as_an_ordinary_broker",
            LOG + "test_producer_state.py::"
            "test_read_committed_gets_the_aborted_transactions_of_its_range",
        ),
        note="Transactions end to end: not served yet.",
    ),
    Row(
        ("KAFKA-15784",),
        "Offsets committed in a transaction are in memory but not in the log, or the reverse.",
        (
            guard(
                "broker/coordinator/offsets.py",
                "            if any(one is value for one in self._pending.get(partition, ())):\n",
                "            if False:\n",
                by=[COORDINATOR + "test_offsets.py::test_offset_counts_when_it_is_replicated"],
            ),
        ),
        also=(
            COORDINATOR + "test_offsets.py::test_commit_that_fails_changes_nothing",
            COORDINATOR + "test_offsets.py::"
            "test_offsets_of_a_transaction_count_when_it_is_committed",
            COORDINATOR + "test_loading.py::test_open_transactions_stay_open_until_their_marker",
        ),
        note="TxnOffsetCommit itself: not served yet.",
    ),
    Row(
        ("KAFKA-20716",),
        "An unclean election takes a marker away: the last stable offset stands still for ever.",
        (
            guard(
                "broker/replica/partition.py",
                "        self._report_loss(log, offset, new_leader_epoch)\n",
                by=[
                    REPLICA + "test_old_bugs.py::"
                    "test_kafka_20716_an_unclean_election_that_takes_a_marker_away",
                    REPLICA + "test_failover.py::test_unclean_election_loses_and_says_so",
                ],
            ),
            guard(
                "broker/log/log.py",
                "        if touches_producers:\n            self.rebuild_producers(offset)\n",
                "        if False:\n            self.rebuild_producers(offset)\n",
                by=[
                    REPLICA + "test_old_bugs.py::"
                    "test_kafka_20716_an_unclean_election_that_takes_a_marker_away",
                ],
            ),
        ),
        note="Told by the loss ledger with the producer's id; ended by an abort marker. The tool that"
        " writes one: not served yet.",
    ),
    Row(
        ("KAFKA-12890", "KAFKA-9752", "KAFKA-14422"),
        "Groups that are stuck: a member that never sends SyncGroup, one that waits for ever to join,"
        " static members of mixed versions.",
        (
            guard(
                "broker/coordinator/membership.py",
                "        if not settled or group.generation != generation or not group.pending_sync:"
                "\n",
                "        if True:\n",
                by=[
                    COORDINATOR + "test_membership.py::"
                    "test_member_that_never_syncs_is_removed_after_the_rebalance_timeout",
                ],
            ),
            guard(
                "broker/coordinator/membership.py",
                "NEW_MEMBER_LIMIT_S: Final = 300.0\n",
                "NEW_MEMBER_LIMIT_S: Final = 300000.0\n",
                by=[
                    COORDINATOR + "test_membership.py::test_new_member_waits_at_most_five_minutes",
                ],
            ),
        ),
        also=(
            COORDINATOR + "test_membership.py::test_mixed_versions_in_one_group",
            COORDINATOR + "test_model.py::test_random_histories",
        ),
    ),
    Row(
        ("KAFKA-7286", "KAFKA-8069", "KAFKA-15468"),
        "A coordinator hangs on a large record, lets offsets expire while it loads, or loads again"
        " though it has led all the time.",
        (
            guard(
                "broker/replica/partition.py",
                "        return not was_leader\n",
                "        return True\n",
                by=[REPLICA + "test_roles.py::test_listeners_hear_of_leaders_followers_and_stops"],
            ),
        ),
        also=(
            COORDINATOR + "test_loading.py::test_large_group_record_is_read",
            COORDINATOR + "test_offsets.py::test_loaded_offsets_keep_their_age",
            COORDINATOR + "test_offsets.py::test_own_expiry_time_goes_before_the_rule",
        ),
    ),
    Row(
        (
            "KAFKA-4229",
            "KAFKA-5473",
            "KAFKA-6517",
            "KAFKA-7165",
            "KAFKA-8532",
            "KAFKA-14887",
        ),
        "A session of ZooKeeper ends: a broker does not come back, comes back twice, takes its own"
        " node for a stranger's, or a controller goes on.",
        (
            guard(
                "zk/brokers.py",
                "            elif owner == previous_session_id:\n",
                "            elif False:\n",
                by=[
                    "tests/contract/test_zk_operations.py::"
                    "test_our_own_earlier_session_is_replaced",
                ],
            ),
            guard(
                "zk/brokers.py",
                "            if owner == session_id:\n",
                "            if False:\n",
                by=["tests/unit/zk/test_lost_answers.py::test_a_lost_connection_does_not_show"],
            ),
            guard(
                "controller/controller.py",
                '        self._preempt()\n        self._resign("session expired")\n',
                by=[
                    CONTROLLER + "test_world.py::test_what_waits_is_refused_when_the_session_ends",
                ],
            ),
        ),
        also=(
            CONTROLLER + "test_faults.py::test_story_with_one_fault",
            CONTROLLER + "test_world.py::"
            "test_session_expiry_makes_a_new_broker_epoch_and_another_controller",
            INTEGRATION + "test_zookeeper_trouble.py::"
            "test_sessions_that_end_while_zookeeper_is_frozen_are_replaced_once",
            INTEGRATION + "test_three_brokers.py::test_a_lost_session_is_replaced_once",
        ),
    ),
)

HEAD: Final = """# Known bugs of this design, and the tests that catch them

Kafka has had these bugs, or another implementation of its protocol has. The page is made from
`tests/history.py` (`python -m tests.history write`). *Proven* means: the guard was taken out of a copy
of the package, and each of these tests failed; `python -m tests.history prove` does it again. The
others tell the same story, but no single guard stands for them.

| bug | what goes wrong | proven by taking the guard out | other tests |
|---|---|---|---|
"""


def page() -> str:
    """What docs/history.md must hold."""
    lines = []
    for row in ROWS:
        proven = list(dict.fromkeys(test for guard in row.guards for test in guard.catches))
        others = [test for test in row.also if test not in proven]
        wrong = row.wrong + (f" *{row.note}*" if row.note else "")
        cells = (", ".join(row.bugs), wrong, _listed(proven), _listed(others))
        lines.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(lines)


def _listed(tests: Iterable[str]) -> str:
    return "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests)


# -- the proof ------------------------------------------------------------------------------------


def prove(bugs: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Take out the guards of the rows that name one of `bugs` (none: all).

    Yields the name of each guard and what is wrong with its proof, empty when every test failed.
    Before that all tests must pass.
    """
    wanted = set(bugs)
    rows = [row for row in ROWS if row.guards and not (wanted and wanted.isdisjoint(row.bugs))]
    with tempfile.TemporaryDirectory(prefix="kafkalike-history-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "node_modules")
                shutil.copytree(source, copy / name, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, copy / name)
        tests = dict.fromkeys(t for row in rows for guard in row.guards for t in guard.catches)
        code, said, failed = _run(copy, tests)
        yield "with all guards", "" if code == 0 else f"failed: {failed or said}"
        for row in rows:
            for number, one in enumerate(row.guards):
                yield f"{row.bugs[0]} guard {number + 1}", _problem_without(copy, one)


def _problem_without(copy: Path, one: Guard) -> str:
    """Empty when every test named for the guard fails without it."""
    before = {copy / edit.path: (copy / edit.path).read_text() for edit in one.edits}
    try:
        for edit in one.edits:
            path = copy / edit.path
            text = path.read_text()
            if text.count(edit.code) != 1:
                return f"{edit.path} holds {text.count(edit.code)} times: {edit.code!r}"
            path.write_text(text.replace(edit.code, edit.without))
        code, said, failed = _run(copy, one.catches)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S} s"
    finally:
        for path, text in before.items():
            path.write_text(text)
    if code not in (0, 1):
        return f"pytest ended with {code}: {said}"
    passed = [t for t in one.catches if not any(f == t or f.startswith(t + "[") for f in failed)]
    return f"not missed by {', '.join(passed)}" if passed else ""


def _run(copy: Path, tests: Iterable[str]) -> tuple[int, str, list[str]]:
    """Exit code of pytest, the end of what it said, the ids of the tests that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", *tests],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return done.returncode, done.stdout[-2000:], failed


def main(words: list[str]) -> int:
    if words[:1] == ["write"]:
        PAGE.write_text(page())
        return 0
    if words[:1] == ["prove"]:
        problems = 0
        for name, problem in prove(words[1:]):
            print(f"{name}: {problem or 'proven'}", flush=True)
            problems += bool(problem)
        return 1 if problems else 0
    print("usage: python -m tests.history write | prove [BUG ...]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
