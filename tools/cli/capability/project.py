"""The author's project in a folder: its entry points, found without installing it."""

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from foundation.errors import InvalidArgumentError, NotFoundError
from node_agent.sdk.discovery import (
    ENTRY_POINT_GROUP,
    LoadedCapability,
    installed_references,
    load_capabilities,
)

PYPROJECT = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Project:
    """A folder whose pyproject.toml names capabilities; `import_folders` hold its packages."""

    folder: Path
    name: str
    references: tuple[str, ...]
    import_folders: tuple[Path, ...]

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """Read the project of a folder; None if it has none that names a capability.

        Raises InvalidArgumentError for a pyproject.toml that is no TOML.
        """
        file = folder / PYPROJECT
        if not file.exists():
            return None
        try:
            described = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"{file} cannot be read: {error}; correct it") from None
        points = described.get("entry-points", {}).get(ENTRY_POINT_GROUP, {})
        if not points:
            return None
        home = folder.resolve()
        source = home / "src"
        folders = (source,) if source.is_dir() else (home,)
        return cls(home, described.get("name", home.name), tuple(points.values()), folders)

    def make_importable(self) -> None:
        """Let this process, and the children it starts, import the project's packages."""
        for folder in self.import_folders:
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))


def references_of(folder: Path) -> Sequence[str]:
    """Every capability here: of the folder's project, which is made importable, and installed."""
    project = Project.find(folder)
    if project is None:
        return installed_references()
    project.make_importable()
    installed = [one for one in installed_references() if one not in project.references]
    return [*project.references, *installed]


def find_capability(name: str, folder: Path) -> LoadedCapability:
    """Load NAME or NAME@VERSION; of several versions the one that is named last.

    Raises NotFoundError, or CapabilityDefinitionError for one that cannot be loaded.
    """
    wanted, _, version = name.partition("@")
    found = [
        loaded
        for (one, one_version), loaded in load_capabilities(references_of(folder)).items()
        if one == wanted and version in {"", one_version}
    ]
    if not found:
        raise NotFoundError(
            f"no capability {name} is installed, or in the project of {folder.resolve()};"
            " `tdp capability list` names those that are",
            reason="CAPABILITY_UNKNOWN",
        )
    return found[-1]
