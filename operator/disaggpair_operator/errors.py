"""Errors of the operator's own; those of the Kubernetes API are in `cluster`.

OperatorError
  BadSettings         a flag or variable the operator was started with is wrong
  NoCredentials       neither a kubeconfig nor a service account to connect with
  DefinitionMissing   the API server does not know the kind DisaggPair
  WatchEnded          the API server refuses a watch, now or for good
  Incomplete          a reconcile left something undone that a later attempt may do
"""


class OperatorError(Exception):
    """Base of the errors below; its text is a sentence for the person who runs the operator."""


class BadSettings(OperatorError):
    """A flag or environment variable has a value that cannot be used."""


class NoCredentials(OperatorError):
    """There is nothing to connect to an API server with."""


class DefinitionMissing(OperatorError):
    """The CustomResourceDefinition of DisaggPair is not installed."""


class WatchEnded(OperatorError):
    """Events no longer arrive; only a new process begins to watch again."""


class Incomplete(OperatorError):
    """Some objects could not be written; the status says so, and the pair is tried again."""
