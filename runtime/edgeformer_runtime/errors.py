"""The exceptions that the runtime raises deliberately.

::

    EdgeformerError
    ├── BundleError            a bundle is missing, damaged, or has another schema revision
    ├── DeviceError            a provider is missing or unknown
    ├── ConfigError            a recipe, a file name or another setting is wrong
    ├── DataError              a text file or a corpus cannot be read
    ├── ModelError             a model computes NaN or infinite values
    ├── OptionError            an option is out of range, or of another type
    ├── SessionError           a translator was closed, or opened in ONNX Runtime before a fork
    ├── StoppedError           a translation was given up before it was complete
    │   ├── CanceledError      it was not wanted any more
    │   └── TimedOutError      it took longer than its `timeout`; also a `TimeoutError`
    └── InputError             a text cannot be translated
        └── InputTooLongError  a text has more tokens than the model accepts

Messages are full sentences that state the problem, the value and the next step. All errors can be pickled, so that they
come back from worker processes.
"""

from __future__ import annotations


def missing_package(what: str, package: str | None, extra: str) -> str:
    """The message for a package that is not installed, with the command that installs it.

    pip finds edgeformer itself installed, from a clone or a wheel, and reads in its metadata what the extra needs: the
    command works although no index has edgeformer.

    Args:
        what: what needs the package, as the singular subject of the sentence.
        package: name of the module that could not be imported.
        extra: the extra of edgeformer that has it; several are separated by commas.
    """
    return f"{what} needs `{package}`: pip install 'edgeformer[{extra}]'."


class EdgeformerError(Exception):
    """Base class of errors that users can cause and fix."""


class BundleError(EdgeformerError):
    """A bundle is missing, incomplete or damaged, or has another schema revision."""


class DeviceError(EdgeformerError):
    """The requested device is unknown or not available."""


class ConfigError(EdgeformerError):
    """A recipe, a file name or another setting is wrong."""


class DataError(EdgeformerError):
    """A text file or corpus cannot be read or contains no usable data."""


class ModelError(EdgeformerError):
    """A model computes values that are not finite, so that no token can be chosen."""


class OptionError(EdgeformerError):
    """An option or argument is out of range, or of another type."""


class SessionError(EdgeformerError):
    """A translator was closed, or opened in ONNX Runtime before this process was forked."""


class StoppedError(EdgeformerError):
    """A translation was given up before it was complete."""


class CanceledError(StoppedError):
    """A translation was not wanted any more."""


class TimedOutError(StoppedError, TimeoutError):
    """A translation took longer than its ``timeout``."""


class InputError(EdgeformerError):
    """A text cannot be translated.

    Attributes:
        problem: the problem, as a sentence without its subject.
        index: zero-based position of the text in the call.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"Text {index + 1} {problem}")
        self.index, self.problem = index, problem

    def __reduce__(self) -> tuple[type[InputError], tuple[object, ...]]:
        return type(self), (self.index, self.problem)

    def at(self, index: int) -> InputError:
        """Return the same error for a text at another position, for callers that process a long list in parts."""
        return InputError(index, self.problem)


class InputTooLongError(InputError):
    """A text has more tokens than the model accepts.

    Attributes:
        length: number of tokens, including the end token.
        limit: maximum number of tokens.
    """

    def __init__(self, index: int, length: int, limit: int) -> None:
        super().__init__(
            index,
            f"has {length} tokens, but the model accepts at most {limit}; split it into sentences, or set `truncate`.",
        )
        self.length, self.limit = length, limit

    def __reduce__(self) -> tuple[type[InputError], tuple[object, ...]]:
        return type(self), (self.index, self.length, self.limit)

    def at(self, index: int) -> InputTooLongError:
        """See :meth:`InputError.at`."""
        return InputTooLongError(index, self.length, self.limit)
