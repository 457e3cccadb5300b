"""Finds the capabilities that are installed, by entry points, and loads them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from node_agent.sdk.definition import Capability
from node_agent.sdk.errors import CapabilityDefinitionError
from node_agent.sdk.whereabouts import place_of_error

ENTRY_POINT_GROUP: Final = "tdp.capabilities"

CapabilityKey = tuple[str, str]
"""Name and version."""


@dataclass(frozen=True, slots=True)
class LoadedCapability:
    """A capability, and where it is (`package.module:name`), so that a child can load it too."""

    reference: str
    capability: Capability


def installed_references() -> tuple[str, ...]:
    """Where every installed capability is, from the entry points of all distributions."""
    return tuple(sorted({point.value for point in entry_points(group=ENTRY_POINT_GROUP)}))


def load_capabilities(references: Iterable[str]) -> Mapping[CapabilityKey, LoadedCapability]:
    """Import capabilities; the result is keyed by name and version.

    Raises:
        CapabilityDefinitionError: one cannot be imported, is no capability, or two have the
            same name and version.
    """
    found: dict[CapabilityKey, LoadedCapability] = {}
    for reference in references:
        loaded = LoadedCapability(reference, _load(reference))
        key = loaded.capability.name, loaded.capability.version
        if key in found and found[key].reference != reference:
            raise CapabilityDefinitionError(
                f"{key[0]} version {key[1]} is declared by {found[key].reference} and by"
                f" {reference}; uninstall one, or give it another version"
            )
        found[key] = loaded
    return found


def _load(reference: str) -> Capability:
    try:
        value = EntryPoint("capability", reference, ENTRY_POINT_GROUP).load()
    except Exception as error:
        # An author's module may raise anything while it is imported.
        raise CapabilityDefinitionError(_problem(reference, error)) from error
    if not isinstance(value, Capability):
        raise CapabilityDefinitionError(
            f"{reference} is a {type(value).__name__}; it must be made by @capability"
        )
    return value


def _problem(reference: str, error: Exception) -> str:
    place = place_of_error(error)
    at = f" at {place}" if place else ""
    if isinstance(error, CapabilityDefinitionError):
        return f"{error.message} ({reference}{at})"
    return (
        f"capability {reference} cannot be loaded: {type(error).__name__}: {error}{at}; repair"
        " or uninstall its package"
    )
