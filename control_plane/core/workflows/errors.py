"""What can be wrong with a definition, an input or step constraints."""

from control_plane.core.errors import ControlPlaneError
from foundation.errors import InvalidArgumentError


class DefinitionInvalidError(ControlPlaneError, InvalidArgumentError):
    """A workflow definition breaks one or more rules; each violation names its key."""

    reason = "WORKFLOW_INVALID"


class InputInvalidError(ControlPlaneError, InvalidArgumentError):
    """A document does not match its JSON Schema; each violation names its place."""

    reason = "INPUT_INVALID"


class ConstraintsInvalidError(ControlPlaneError, InvalidArgumentError):
    """Step constraints name an unknown step or key, or have the wrong type."""

    reason = "STEP_CONSTRAINTS_INVALID"
