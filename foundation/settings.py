"""Settings: read once from TDP_… variables into a frozen, validated object.

A secret field (SecretStr) may be given as a file: TDP_X_FILE instead of TDP_X.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, get_args

from pydantic import Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from foundation.errors import FieldViolation, InvalidArgumentError
from foundation.failpoints import FAILPOINT_HITS_VARIABLE, FAILPOINTS_VARIABLE

ENV_PREFIX: Final = "TDP_"
_FILE_SUFFIX = "_FILE"
# How alike a misspelt variable and its suggestion have to be, from 0 to 1.
_NEAR = 0.8
_SECRET_FILE_BYTES_MAX = 64 * 1024

Settings = TypeVar("Settings", bound="TdpSettings")


class SettingsError(InvalidArgumentError):
    """The settings cannot be used; each violation's field is the variable to change."""

    reason = "SETTINGS_INVALID"


class TdpSettings(BaseSettings):
    """Base of a process's settings: frozen, prefix TDP_, values never shown in errors.

    A process narrows the prefix (`env_prefix="TDP_GATEWAY_"`) where its variables must not
    be mistaken for another's.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True
    )

    # Variables with our prefix that are read elsewhere, and so are not unknown.
    variables_read_elsewhere: ClassVar[frozenset[str]] = frozenset(
        {FAILPOINTS_VARIABLE, FAILPOINT_HITS_VARIABLE}
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the interface names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the interface names it
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, then variables, then secret files; never a .env file."""
        return init_settings, env_settings, SecretFileSource(settings_cls)


class ServiceSettings(TdpSettings):
    """What every long-running process can be told."""

    log_level: str = Field(
        "info",
        pattern="^(debug|info|warning|error)$",
        description="Least severity that is logged: debug, info, warning or error.",
    )
    log_format: str = Field(
        "json",
        pattern="^(json|console)$",
        description="Shape of log lines: json for machines, console for a person.",
    )
    shutdown_grace_s: float = Field(
        15.0, gt=0, le=600, description="Seconds that an ordered shutdown may take in all."
    )
    uvloop: bool = Field(
        default=True, description="Run on uvloop instead of asyncio's own event loop."
    )


class SecretFileSource(EnvSettingsSource):
    """Reads secret fields from the files that …_FILE variables name."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the content of the secret's file, without its last line break."""
        if not _is_secret(field):
            return None, field_name, False
        variable = f"{self.env_prefix}{field_name}".upper()
        path = os.environ.get(variable + _FILE_SUFFIX)
        if path is None:
            return None, field_name, False
        if variable in os.environ:
            raise _invalid(variable, f"is set, and {variable}{_FILE_SUFFIX} too: use one of them")
        return _secret_from(Path(path), variable + _FILE_SUFFIX), field_name, False


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One setting, for people: its variable, type, default (None: required) and meaning."""

    variable: str
    type: str
    default: str | None
    secret: bool
    description: str


def load_settings(settings_class: type[Settings]) -> Settings:
    """Read and validate the environment; SettingsError lists every wrong variable, no value."""
    try:
        return settings_class()
    except ValidationError as error:
        prefix = settings_class.model_config.get("env_prefix", ENV_PREFIX)
        raise SettingsError.of_fields(
            [_violation(prefix, dict(one)) for one in error.errors(include_input=False)]
        ) from None
    except SourceError as error:
        # The library wraps what a source raises; a value that is not the JSON that a list or
        # mapping needs comes this way too, named but not quoted.
        if isinstance(error.__cause__, SettingsError):
            raise error.__cause__ from None
        raise SettingsError(f"{error}: expected JSON") from None


def unknown_variables(
    settings_class: type[TdpSettings], environ: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables with the class's prefix that it does not know, each with a near name.

    They are reported, not refused: processes that share an environment share its prefix.
    """
    known = {one.variable for one in describe_settings(settings_class)}
    known |= {
        one.variable + _FILE_SUFFIX for one in describe_settings(settings_class) if one.secret
    }
    prefix = settings_class.model_config.get("env_prefix", ENV_PREFIX)
    unknown = sorted(
        name
        for name in environ
        if name.startswith(prefix) and name not in known | settings_class.variables_read_elsewhere
    )
    return {
        name: next(iter(difflib.get_close_matches(name, known, 1, _NEAR)), None) for name in unknown
    }


def describe_settings(settings_class: type[TdpSettings]) -> tuple[SettingDoc, ...]:
    """Return every setting of the class in its order, with defaults but no present value."""
    prefix = settings_class.model_config.get("env_prefix", ENV_PREFIX)
    return tuple(
        SettingDoc(
            variable=f"{prefix}{name}".upper(),
            type=_type_name(field.annotation),
            default=None if field.is_required() else _default_text(field),
            secret=_is_secret(field),
            description=field.description or "",
        )
        for name, field in settings_class.model_fields.items()
    )


def _nearest(name: str, known: set[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, 1, _NEAR)), None)


def _is_secret(field: FieldInfo) -> bool:
    return field.annotation is SecretStr or SecretStr in get_args(field.annotation)


def _default_text(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    return "**********" if isinstance(default, SecretStr) else str(default)


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _secret_from(path: Path, variable: str) -> str:
    try:
        content = path.read_bytes()
        if len(content) > _SECRET_FILE_BYTES_MAX:
            raise _invalid(variable, f"{path} has {len(content)} bytes: that is no secret")
        return content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _invalid(variable, f"{path} cannot be read: {why}") from None


def _invalid(variable: str, description: str) -> SettingsError:
    return SettingsError(
        f"{variable}: {description}", field_violations=(FieldViolation(variable, description),)
    )


def _violation(prefix: str, error: Mapping[str, Any]) -> FieldViolation:
    location, message = error["loc"], str(error["msg"])
    if not location:
        return FieldViolation(f"{prefix}*", message)
    return FieldViolation(f"{prefix}{location[0]}".upper(), message)
