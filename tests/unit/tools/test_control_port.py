"""Which verbs of the control port leave everything as it is."""

import inspect

from kafkalike.tools.local.verbs import ASKING, Verbs

FACTS = {
    *("controller", "end_offset", "group", "info", "isr", "leader"),
    *("pending_errors", "replicas", "topics"),
}


def test_asking_verbs_are_the_facts_and_those_that_wait() -> None:
    """A verb that is new acts, until it is said here that it does not."""
    verbs = {
        name
        for name, _ in inspect.getmembers(Verbs, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert verbs >= FACTS
    assert FACTS | {name for name in verbs if name.startswith("wait_")} == ASKING
