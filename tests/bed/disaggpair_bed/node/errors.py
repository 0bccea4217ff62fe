"""The node's error tree.

NodeError
  ConfigError        the node or image configuration is wrong: the process does not start
  NoSandbox          this machine lets us make no namespaces: the process does not start
  SpecError          a pod asks for something process nodes do not have
  MissingReference   a ConfigMap, Secret or key that a container needs does not exist (yet)
  UnknownImage       an image that the image map does not name
  StartError         the process of a container could not be started
  ApiError           the API server refused a request, or did not answer
"""


class NodeError(Exception):
    """Any failure a process node reports itself."""


class ConfigError(NodeError):
    """A configuration file is wrong; the message names file, field, value and what is allowed."""


class NoSandbox(NodeError):
    """Neither root's namespaces nor a user namespace can be made here."""


class SpecError(NodeError):
    """A pod asks for something process nodes do not have."""


class MissingReference(NodeError):
    """Something a container refers to does not exist; looked for again later."""


class UnknownImage(NodeError):
    """The image map has no entry for an image; the map is read again later."""


class StartError(NodeError):
    """A container's process could not be started."""


class ApiError(NodeError):
    """A request the API server did not carry out; `status` is 0 when it did not answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status
