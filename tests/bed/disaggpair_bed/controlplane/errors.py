"""The errors of the control plane.

BedError
├── PrerequisiteError   the machine lacks something; the sentence says what works instead
├── BuildError          go refused; carries go's last lines
├── RunDirError         the run folder belongs to somebody else
├── StartError          a program did not become ready
├── ProcessDiedError    a program ended that should run; carries its last log lines
└── ToolError           kubectl or helm failed; carries their output
"""


class BedError(Exception):
    """The test bed cannot go on; the message is one to show to a person as it is."""


class PrerequisiteError(BedError):
    """The machine lacks something that the bed needs."""


class BuildError(BedError):
    """The control plane could not be compiled."""


class RunDirError(BedError):
    """The run folder is in use, or is not one of ours."""


class StartError(BedError):
    """A program of the bed did not become ready."""


class ProcessDiedError(BedError):
    """A program of the bed ended by itself."""


class ToolError(BedError):
    """A call of kubectl or helm failed."""
