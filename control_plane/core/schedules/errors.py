"""What can be wrong with a schedule or a request about one."""

from control_plane.core.errors import ControlPlaneError
from foundation.errors import (
    AbortedError,
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)


class ScheduleInvalidError(ControlPlaneError, InvalidArgumentError):
    """Fields of the request are wrong; each violation names one."""

    reason = "SCHEDULE_INVALID"


class ScheduleNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such schedule, or it is another application's."""

    reason = "SCHEDULE_NOT_FOUND"


class ScheduleNameTakenError(ControlPlaneError, AlreadyExistsError):
    """The application has another schedule of this name."""

    reason = "SCHEDULE_NAME_TAKEN"


class ScheduleChangedError(ControlPlaneError, AbortedError):
    """The schedule was changed since it was read."""

    reason = "SCHEDULE_CHANGED"


class TooManySchedulesError(ControlPlaneError, ResourceExhaustedError):
    """The application has as many schedules as it may."""

    reason = "TOO_MANY_SCHEDULES"
    retryable = False
