"""What can go wrong, one class for each way in which a caller would go on differently.

Messages are those of the `heddle` program where it was the one to refuse.
"""

from __future__ import annotations


class HeddleError(Exception):
    """Base of all errors of this package."""


class ProgramMissing(HeddleError):
    """This package was installed without the `heddle` program."""


class ProgramFailed(HeddleError):
    """The program failed for a reason that has no class of its own. `code` is its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class InvalidArgument(ProgramFailed, ValueError):
    """An unknown operator, a shape that is not possible, notation that does not parse (exit code 2)."""


class NoValidSchedule(ProgramFailed):
    """Nothing that was tried compiles, runs and computes the right values, or none is stored (exit code 3)."""


class Unavailable(ProgramFailed):
    """No such server, or no such device (exit code 4)."""


class DeadlineExceeded(ProgramFailed):
    """The time that was allowed is over (exit code 5)."""


class Interrupted(ProgramFailed):
    """Ended by a signal or by `Job.cancel`; what was measured is kept (exit code 130)."""


class NotFound(HeddleError, LookupError):
    """The database has no schedule for this workload and device, and no fallback was asked for."""


class ArtefactError(HeddleError, ValueError):
    """A folder holds no export, or one that this version does not understand."""


class TensorError(HeddleError, ValueError):
    """An argument of a kernel has the wrong data type, shape, layout, alignment or device."""


class DriverError(HeddleError, RuntimeError):
    """A call of the device's driver failed."""


# Exit codes of the program (docs/python.md).
BY_EXIT_CODE: dict[int, type[ProgramFailed]] = {
    2: InvalidArgument,
    3: NoValidSchedule,
    4: Unavailable,
    5: DeadlineExceeded,
    130: Interrupted,
}
