"""Every error the runtime raises on purpose.

::

    EdgeformerError
    ├── BundleError            a bundle is missing, damaged, or of another revision
    ├── DeviceError            a provider is missing or unknown
    ├── ConfigError            a recipe, a file name or another setting is wrong
    ├── DataError              a text file or a corpus cannot be read
    ├── ModelError             a model computes values that are not numbers
    ├── OptionError            a decoding option is out of its range
    └── InputError             a text cannot be translated
        └── InputTooLongError  a text has more tokens than the model takes

Messages are whole sentences that say what is wrong, with the value found, and what to do next.
"""

from __future__ import annotations


class EdgeformerError(Exception):
    """Base of all errors that a user can cause and mend."""


class BundleError(EdgeformerError):
    """A bundle is missing, incomplete, damaged, or written by another revision of the format."""


class DeviceError(EdgeformerError):
    """The asked execution provider is unknown or not installed."""


class ConfigError(EdgeformerError):
    """A recipe, a file name or another setting is wrong."""


class DataError(EdgeformerError):
    """A text file or a corpus cannot be read, or holds nothing to work on."""


class ModelError(EdgeformerError):
    """A model computes values from which no token can be chosen."""


class OptionError(EdgeformerError):
    """A decoding option is out of its range."""


class InputError(EdgeformerError):
    """A text cannot be translated.

    Attributes:
        problem: what is wrong with it, as the end of a sentence about it.
        index: position of the text in the call, from 0.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"Text {index + 1} {problem}")
        self.index, self.problem = index, problem

    def at(self, index: int) -> InputError:
        """The same error of a text at another position, for callers that pass on parts of a longer list."""
        return InputError(index, self.problem)


class InputTooLongError(InputError):
    """A text has more tokens than the model takes.

    Attributes:
        length: its tokens, end token included.
        limit: the most the model takes.
    """

    def __init__(self, index: int, length: int, limit: int) -> None:
        problem = f"has {length} tokens, but the model takes at most {limit}; split it into sentences, or let it be cut"
        super().__init__(index, f"{problem} (`truncate`).")
        self.length, self.limit = length, limit

    def at(self, index: int) -> InputTooLongError:
        """See :meth:`InputError.at`."""
        return InputTooLongError(index, self.length, self.limit)
