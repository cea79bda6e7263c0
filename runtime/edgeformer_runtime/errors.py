"""The errors that the runtime raises on purpose.

::

    EdgeformerError
    ├── BundleError            a bundle is missing, damaged, or of another revision
    ├── DeviceError            a provider is missing or unknown
    ├── ConfigError            a recipe, a file name or another setting is wrong
    ├── DataError              a text file or a corpus cannot be read
    ├── ModelError             a model computes values that are not numbers
    ├── OptionError            a decoding option is out of its range
    └── InputError             a text cannot be translated
        └── InputTooLongError  a text has more tokens than the model accepts

Messages are full sentences that state what is wrong, the value, and what to do next.
"""

from __future__ import annotations


class EdgeformerError(Exception):
    """Base class of the errors that a user can cause and fix."""


class BundleError(EdgeformerError):
    """A bundle is missing, incomplete, damaged, or of another schema revision."""


class DeviceError(EdgeformerError):
    """The requested device is unknown or not available."""


class ConfigError(EdgeformerError):
    """A recipe, a file name or another setting is wrong."""


class DataError(EdgeformerError):
    """A text file or a corpus cannot be read, or holds nothing to work on."""


class ModelError(EdgeformerError):
    """A model computes values that are not finite, so that no token can be chosen."""


class OptionError(EdgeformerError):
    """A decoding option is out of its range."""


class InputError(EdgeformerError):
    """A text cannot be translated.

    Attributes:
        problem: what is wrong, as a sentence without its subject.
        index: position of the text in the call, counted from 0.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"Text {index + 1} {problem}")
        self.index, self.problem = index, problem

    def at(self, index: int) -> InputError:
        """The same error for a text at another position, for callers that process a longer list in parts."""
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

    def at(self, index: int) -> InputTooLongError:
        """See :meth:`InputError.at`."""
        return InputTooLongError(index, self.length, self.limit)
