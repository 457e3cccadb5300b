"""Cursors, idempotency keys, live wake-ups, documents and workflows of the gateway."""

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from business_gateway.adapters.inbound.rest_models import OrderDocument
from business_gateway.core.errors import (
    IdempotencyKeyMalformedError,
    IdempotencyKeyMissingError,
    PageCursorInvalidError,
)
from business_gateway.core.idempotency import request_identity
from business_gateway.core.orders.change_hub import OrderChangeHub
from business_gateway.core.orders.commands import submit_command
from business_gateway.core.orders.documents import order_document
from business_gateway.core.orders.domain import CommandId, NewOrder, ProcessingMode, checked_request
from business_gateway.core.paging import page_cursor, page_position, page_size
from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.workflows.publishing import check_definition
from foundation.errors import InvalidArgumentError
from tests.unit.business_gateway.orders.test_rules import ASSET_ID, ORDER_ID, an_order


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_cursor_leads_back_to_its_place(scope: str, position: str) -> None:
    """What was made by a list is read by that list, and refused by any other."""
    cursor = page_cursor(scope, position) if scope.isprintable() else ""
    if cursor:
        assert page_position(cursor, scope) == position
        with pytest.raises(PageCursorInvalidError):
            page_position(cursor, scope + "x")


@given(st.text(max_size=80))
def test_a_strange_cursor_is_refused_whatever_it_is(cursor: str) -> None:
    """Text that no list made is PAGE_CURSOR_INVALID, never a crash."""
    if cursor:
        with pytest.raises(PageCursorInvalidError):
            page_position(cursor, "orders:")
    else:
        assert page_position(cursor, "orders:") is None


def test_page_sizes_have_bounds() -> None:
    """0 is the default, 200 the most."""
    assert (page_size(0), page_size(1), page_size(200)) == (50, 1, 200)
    for asked in (-1, 201):
        with pytest.raises(InvalidArgumentError):
            page_size(asked)


def test_a_key_identifies_its_request() -> None:
    """Missing and malformed keys are refused; the hash follows the fields and nothing else."""
    fields = {"name": "a"}
    one = request_identity("client", "CreateOrder", "k1", fields)
    other = request_identity("client", "CreateOrder", "k2", fields)
    assert one.request_sha256 == other.request_sha256
    changed = request_identity("client", "CreateOrder", "k1", {"name": "b"})
    assert changed.request_sha256 != one.request_sha256
    for missing in (None, ""):
        with pytest.raises(IdempotencyKeyMissingError):
            request_identity("client", "CreateOrder", missing, fields)
    for malformed in ("k" * 201, "a b", "ключ"):
        with pytest.raises(IdempotencyKeyMalformedError):
            request_identity("client", "CreateOrder", malformed, fields)


def test_a_hub_wakes_those_who_watch_and_forgets_them() -> None:
    """Only watchers of the order are woken; closing wakes all; nothing stays behind."""
    hub = OrderChangeHub()
    other = type(ORDER_ID)("0190a000-0000-7000-8000-0000000000ff")
    with hub.watch(ORDER_ID) as first, hub.watch(ORDER_ID) as second, hub.watch(other) as third:
        hub.announce(ORDER_ID)
        assert [one.pending for one in (first, second, third)] == [True, True, False]
        hub.close()
        assert third.pending
        assert hub.closed
    assert hub.watched_count == 0


def test_the_document_is_the_one_that_the_interface_promises() -> None:
    """Every field that OpenAPI names is in the document, and no other."""
    document = order_document(an_order())
    assert set(document) == set(OrderDocument.model_fields)
    OrderDocument.model_validate_json(json.dumps(document))


@pytest.mark.parametrize("mode", list(ProcessingMode))
def test_the_workflows_can_be_published_and_take_our_input(mode: ProcessingMode) -> None:
    """Each mode's definition passes every publish check, and its schema the input we send."""
    text = "水印" if mode is ProcessingMode.ARCHIVE_CLEAN_THEN_WATERMARK else ""
    order = NewOrder(ORDER_ID, checked_request("A", mode, text, ASSET_ID))
    sent = json.loads(submit_command(CommandId("c"), order).payload)
    source = files("business_gateway.workflows").joinpath(f"{sent['workflow_name']}.yaml")
    checked = check_definition(
        source.read_text(encoding="utf-8"), CelCompiler(), lambda _name, _version: True
    )
    assert checked.warnings == ()
    definition = checked.definition
    assert (definition.name, definition.version) == (sent["workflow_name"], "1")
    assert sent["workflow_version"] == definition.version
