"""Who may have which grant, and which answers of a provider are usable."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.core.executions.domain import StepKey
from control_plane.core.grants.domain import (
    Access,
    ArtifactPlace,
    GrantMethod,
    GrantRequest,
    ProviderAnswerError,
    ancestors,
    check_access,
    check_places,
    check_request,
    references,
)
from control_plane.core.workflows.domain import StepDefinition, WorkflowDefinition
from foundation.errors import InvalidArgumentError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCESS = Access("https://s3.example/x", GrantMethod.GET, {}, NOW + timedelta(minutes=5), 10, b"")


def test_references_are_found_at_any_depth() -> None:
    """Every string of a document counts, keys do not."""
    document = '{"a": ["asset:1", {"b": "asset:2"}], "asset:3": 4, "c": null}'
    assert references(document) == {"asset:1", "asset:2"}
    assert references("") == frozenset()


def test_ancestors_are_all_that_a_step_waits_for() -> None:
    """The closure of depends_on, without the step itself."""
    steps = tuple(
        StepDefinition(StepKey(key), depends_on=tuple(StepKey(one) for one in waits))
        for key, waits in {"a": "", "b": "a", "c": "b", "d": "", "e": "cd"}.items()
    )
    definition = WorkflowDefinition("flow", "1", steps)
    assert ancestors(definition, "e") == {"a", "b", "c", "d"}
    assert ancestors(definition, "a") == frozenset()


@pytest.mark.parametrize(
    "wrong",
    [
        GrantRequest("k", "", GrantMethod.GET),
        GrantRequest("k", "asset:1", GrantMethod.GET, "page", ""),
        GrantRequest("k", "asset:1", GrantMethod.GET, "", "3"),
        GrantRequest("k", "asset:1", GrantMethod.PUT, "page", "3"),
    ],
)
def test_incomplete_requests_are_refused(wrong: GrantRequest) -> None:
    """The reference is needed; scope comes whole, and for reading only."""
    with pytest.raises(InvalidArgumentError):
        check_request(wrong)


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../b", "a//b", "a\\b", "a/./b", "a\x00", "ä" * 513]
)
def test_unsafe_artifact_paths_are_refused(path: str) -> None:
    """Only plain relative paths of at most 1,024 bytes are places."""
    with pytest.raises(InvalidArgumentError, match="relative_path"):
        check_places((ArtifactPlace(path, "image", "image/png", 1),))


def test_places_are_counted_and_distinct() -> None:
    """None, too many, or one path twice is refused; good ones pass."""
    place = ArtifactPlace("图/a.png", "image", "image/png", 1)
    check_places((place, replace(place, relative_path="b")))
    for wrong in (
        (),
        (place, place),
        tuple(replace(place, relative_path=str(n)) for n in range(201)),
    ):
        with pytest.raises(InvalidArgumentError, match="artifacts"):
            check_places(wrong)
    with pytest.raises(InvalidArgumentError, match="size_bytes_max"):
        check_places((replace(place, size_bytes_max=0),))


def test_a_providers_answer_is_checked() -> None:
    """Another method, an expired grant or an unencrypted URL is not passed on."""
    assert check_access(ACCESS, GrantMethod.GET, NOW, insecure_allowed=False) is ACCESS
    plain = replace(ACCESS, url="http://127.0.0.1/x")
    assert check_access(plain, GrantMethod.GET, NOW, insecure_allowed=True) is plain
    for wrong, method in (
        (ACCESS, GrantMethod.PUT),
        (replace(ACCESS, expires_at=NOW), GrantMethod.GET),
        (plain, GrantMethod.GET),
        (replace(ACCESS, url="file:///etc/passwd"), GrantMethod.GET),
    ):
        with pytest.raises(ProviderAnswerError):
            check_access(wrong, method, NOW, insecure_allowed=False)
