"""docs/protocol.md says what the catalog says."""

from kafkalike.messages.catalog import APIS
from kafkalike.tools.docs_protocol import TARGET, render


def test_document_is_what_the_catalog_renders() -> None:
    assert TARGET.read_text() == render(), "run: python -m kafkalike.tools.docs_protocol"


def test_document_has_a_row_for_each_api() -> None:
    text = render()
    for api in APIS:
        assert f"\n| {int(api.key)} | {api.name} | 0" in text


def test_every_message_says_what_it_is() -> None:
    for api in APIS:
        for message in (api.request, api.response):
            assert message.__doc__, message
