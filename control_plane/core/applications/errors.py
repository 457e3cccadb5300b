"""What can be wrong with applications and their keys."""

from control_plane.core.errors import ControlPlaneError
from foundation.errors import AlreadyExistsError, NotFoundError


class ApplicationNameTakenError(ControlPlaneError, AlreadyExistsError):
    """Another application has this name."""

    reason = "APPLICATION_NAME_TAKEN"


class ApiKeyTakenError(ControlPlaneError, AlreadyExistsError):
    """The hash of this key is registered already."""

    reason = "API_KEY_TAKEN"


class ApplicationNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such application, or it is not the caller's."""

    reason = "APPLICATION_NOT_FOUND"


class ApiKeyNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such API key."""

    reason = "API_KEY_NOT_FOUND"
