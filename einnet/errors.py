"""The one tree of errors that a user can cause. Everything else that is raised is a bug in einnet."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str], otherwise: str) -> str:
    """What a message says to do about a name that there is not: the one that may have been meant, or something else where none is near."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


class EinNetError(Exception):
    """Base of all errors with a message for the user: quotes the user's own notation and says what to do."""


class ParseError(EinNetError):
    """Text that is no expression. Points at the line and column."""


class ModelError(EinNetError):
    """A model file or graph that cannot be read. Names the file or the node."""


class NotStaticError(ModelError):
    """A valid model with values that are no tensors of a plain type and a static shape: it can be run, but not as a program of expressions."""


class OutOfTimeError(EinNetError):
    """No time is left for what a program needs that nothing can cut short. Says what that is."""


class CertificateError(EinNetError):
    """A derivation step whose two sides are not the same tensor."""


class ArtifactError(EinNetError):
    """An optimized program on disk that cannot be read or does not fit this machine."""


class BackendError(EinNetError):
    """A library or device that is missing or refuses a request."""


class NodeError(BackendError):
    """A node of the model fails in ONNX Runtime inside of a program, as where it gives another shape than the model declares."""


class UsageError(EinNetError):
    """A wrong argument of a public function or of the command line."""
