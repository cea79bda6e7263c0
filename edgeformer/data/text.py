"""Reading of parallel text from plain, gzip or zip files, aligned or tab-separated, without a line that names its
columns."""

from __future__ import annotations

import gzip
import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, compress, zip_longest
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import DataError
from edgeformer_runtime.cli.text_input import decoded_blocks
from edgeformer_runtime.files import check_members

Pair = tuple[str, str]
"""A source sentence and its target sentence."""

MAX_MEMBERS = 100_000
"""Maximum number of files in an archive."""

_ZIP_MEMBER = re.compile(r"(?P<archive>.+\.zip):(?P<member>.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class TextPairs:
    """Sentence pairs that are read again each time they are iterated over, so that memory never has them all."""

    read: Callable[[], Iterable[Pair]]
    """Reads pairs, the same ones in the same order at every call."""
    kept: NDArray[np.bool_]
    """Which of them count, ``(pairs read,)``."""

    @classmethod
    def of(cls, *parts: Sequence[Pair] | TextPairs) -> TextPairs:
        """All pairs of several parts, one part after the other."""
        return cls(lambda: chain.from_iterable(parts), np.ones(sum(map(len, parts)), np.bool_))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.kept))

    def __iter__(self) -> Iterator[Pair]:
        try:
            for pair, is_kept in zip(self.read(), self.kept.tobytes(), strict=True):
                if is_kept:
                    yield pair
        except ValueError:  # zip's: one of them is longer
            raise DataError("The text changed while it was read; start again.") from None

    def rows(self, rows: Sequence[int] | NDArray[np.int64]) -> Iterator[Pair]:
        """Pairs at increasing positions."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[rows] = True
        return compress(self, chosen.tobytes())

    def where(self, chosen: NDArray[np.bool_]) -> TextPairs:
        """Those of the pairs that are chosen, ``(len(self),)``."""
        kept = self.kept.copy()
        kept[kept] = chosen
        return TextPairs(self.read, kept)

    def keep(self, condition: Callable[[Pair], bool]) -> TextPairs:
        """Those of the pairs that meet a condition."""
        return self.where(np.fromiter(map(condition, self), np.bool_, len(self)))


def read_pairs(files: Sequence[str | Path]) -> list[Pair]:
    """Read parallel text as a whole; see :func:`iterate_pairs`."""
    return list(iterate_pairs(files))


def iterate_pairs(files: Sequence[str | Path]) -> Iterator[Pair]:
    """Read parallel text.

    Args:
        files: two aligned files with one sentence per line, or one file of ``source<TAB>target`` lines (further columns
            are ignored; an empty line is a pair of empty sentences).

    Raises:
        DataError: a file is missing, damaged or not UTF-8, the line counts differ, a line has no tab, or the first one
            names columns.
    """
    if len(files) not in (1, 2):
        raise DataError(f"Parallel text is one tab-separated file or two aligned files, but {len(files)} were given.")
    lines = [iterate_lines(file) for file in files]
    if len(files) == 1:
        for number, line in enumerate(lines[0], start=1):
            if number == 1 and names_columns(line.split("\t")):
                header = line.replace("\t", "<TAB>")
                raise DataError(
                    f"`{files[0]}` begins with the header {header}, not with a sentence pair; remove that line. The "
                    "first column must be the source and the second the target."
                )
            yield _split_columns(line, number, files[0])
        return
    for count, (source, target) in enumerate(zip_longest(*lines)):
        if source is None or target is None:
            longer = count + 1 + sum(1 for _ in (lines[1] if source is None else lines[0]))
            source_count, target_count = (count, longer) if source is None else (longer, count)
            raise DataError(
                f"Aligned files must have the same number of lines, but `{files[0]}` has {source_count:,} and "
                f"`{files[1]}` has {target_count:,}; align them again."
            )
        yield source, target


def read_lines(file: str | Path) -> list[str]:
    """Read the lines of a file as a whole; see :func:`iterate_lines`."""
    return list(iterate_lines(file))


def iterate_lines(file: str | Path) -> Iterator[str]:
    r"""Lines of a UTF-8 file, including empty lines; only ``\n`` and ``\r\n`` end a line; a byte-order mark is dropped.

    Raises:
        DataError: the file is missing or damaged, or a line is not UTF-8 or has more than ``MAX_LINE_BYTES``.
    """
    if str(file).lower().endswith(".zip"):
        raise DataError(f"`{file}` is an archive; name the file inside it as `{file}:member`.")
    with opened(file) as stream:
        yield from chain.from_iterable(decoded_blocks(stream.read, str(file)))


def written_lines(lines: Iterable[str]) -> bytes:
    """Content of a file that :func:`read_lines` reads back; line feeds inside a line become spaces."""
    return "".join(line.replace("\n", " ") + "\n" for line in lines).encode("utf-8")


def content_sha256(file: str | Path, content: bytes | None = None) -> str:
    """SHA-256 of what :func:`opened` reads."""
    digest = hashlib.sha256()
    with opened(file, content) as stream:
        while content := stream.read(1 << 20):
            digest.update(content)
    return digest.hexdigest()


@contextmanager
def opened(file: str | Path, content: bytes | None = None) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file, which is decompressed if its name ends in ``.gz``, or a member given as ``archive.zip:member``.

    Args:
        file: the file.
        content: its bytes, if they are not on the disk.

    Raises:
        DataError: the file or the member is missing or damaged.
    """
    try:
        if match := _ZIP_MEMBER.fullmatch(str(file)):
            with zipfile.ZipFile(match["archive"]) as archive:
                if match["member"] not in archive.namelist():
                    members = ", ".join(name for name in archive.namelist()[:8] if not name.endswith("/"))
                    raise DataError(
                        f"`{match['archive']}` has no member `{match['member']}`; it holds {members or 'nothing'}."
                    )
                check_members(archive, MAX_MEMBERS)
                with archive.open(match["member"]) as packed:
                    yield packed
            return
        with Path(file).open("rb") if content is None else BytesIO(content) as plain:
            yield gzip.GzipFile(fileobj=plain) if str(file).lower().endswith(".gz") else plain
    except IsADirectoryError:
        raise DataError(f"`{file}` is a folder; give the files in it.") from None
    except FileNotFoundError:
        raise DataError(
            f"`{file}` does not exist; check the path. Files of a recipe are looked for in the folder of --data or, "
            "without it, in the current folder and beside the recipe."
        ) from None
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"`{file}` is damaged: {error}. Fetch it again.") from None
    except (OSError, RuntimeError, NotImplementedError) as error:  # unreadable; encrypted; unknown compression
        raise DataError(f"`{file}` cannot be read: {error}.") from None


def _split_columns(line: str, number: int, file: str | Path) -> Pair:
    if not line:
        return "", ""
    source, tab, rest = line.partition("\t")
    if not tab:
        raise DataError(f"Line {number:,} of `{file}` must have the form source<TAB>target, but has no tab.")
    return source, rest.partition("\t")[0]


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ROLES = _listed("source src target tgt trg input output text sentence segment translation reference ref hypothesis")
_LANGUAGES = _listed(
    "arabic bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german greek hebrew "
    "hindi hungarian icelandic indonesian irish italian japanese korean latvian lithuanian norwegian persian polish "
    "portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish ukrainian vietnamese"
)
_CODES = _listed(
    "ar bg ca zh hr cs da nl en et fi fr de el he hi hu is id ga it ja ko lv lt no fa pl pt ro ru sr sk sl es sv th tr "
    "uk vi ara bul cat zho hrv ces dan nld eng est fin fra deu ell heb hin hun isl ind gle ita jpn kor lav lit nor fas "
    "pol por ron rus srp slk slv spa swe tha tur ukr vie"
)
_NUMBERS = frozenset({"1", "2"})
_TELLING = _ROLES | _LANGUAGES | {"en", "eng"}
_NAMES = _TELLING | _CODES | _NUMBERS
_INDEX = frozenset({"", "id", "index", "idx", "no", "line", "unnamed: 0"})


def names_columns(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are the names of a source and a target column, perhaps after that of an index.

    Such names are English words and language codes: ``source`` and ``target``, ``English`` and ``French``,
    ``sentence1`` and ``sentence2``, ``en`` and ``fr``. As a translation, no such pair makes sense, so that a pair of
    one-word sentences is not taken for a header. Codes can be words (in German, "it" is "es"), and count only beside
    such a name or ``en``.
    """
    if cells and cells[0].strip().casefold() in _INDEX and names_columns(cells[1:]):
        return True
    if len(cells) < 2:
        return False
    first, second = (_words(cell) for cell in cells[:2])
    return bool(first and second) and first != second and not _TELLING.isdisjoint(first + second)


def _words(cell: str) -> list[str]:
    """Return the words of a column's name, or nothing if the cell has anything else."""
    name = re.sub(r"^([a-z]{2,3})[-_][a-z]{2,4}$", r"\1", cell.strip().strip('#"').casefold())  # en-US is en
    words = re.findall(r"[^\W\d_]+|\d+", name) if re.fullmatch(r"[\w\s-]*", name) else []
    return words if _NAMES.issuperset(words) and not _NUMBERS.issuperset(words) else []
