"""Reading of parallel text from plain, gzip or zip files, aligned or tab-separated, without a line that names its
columns."""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO

from edgeformer.errors import DataError
from edgeformer_runtime.files import checked_members

Pair = tuple[str, str]
"""A source sentence and its target sentence."""

MIN_EXPANDED_BYTES = 1 << 28
MAX_MEMBERS = 100_000
"""Files of an archive."""
MAX_EXPANSION = 100
"""A file may expand to this many times its size, or to :data:`MIN_EXPANDED_BYTES`; text expands about fivefold."""

_ZIP_MEMBER = re.compile(r"(?P<archive>.+\.zip):(?P<member>.+)", re.IGNORECASE | re.DOTALL)


def read_pairs(files: Sequence[str | Path]) -> list[Pair]:
    """Read parallel text.

    Args:
        files: two aligned files with one sentence per line, or one file of ``source<TAB>target`` lines (further columns
            are ignored; an empty line is a pair of empty sentences).

    Raises:
        DataError: a file is missing, damaged or not UTF-8, the line counts differ, a line has no tab, or the first one
            names columns.
    """
    if len(files) == 1:
        lines = read_lines(files[0])
        if lines and names_columns(lines[0].split("\t")):
            header = lines[0].replace("\t", "<TAB>")
            raise DataError(
                f"`{files[0]}` begins with the header {header}, not with a sentence pair; remove that line. The first "
                "column must be the source and the second the target."
            )
        return [_split_columns(line, number, files[0]) for number, line in enumerate(lines, start=1)]
    if len(files) != 2:
        raise DataError(f"Parallel text is one tab-separated file or two aligned files, but {len(files)} were given.")
    source, target = (read_lines(file) for file in files)
    if len(source) != len(target):
        raise DataError(
            f"Aligned files must have the same number of lines, but `{files[0]}` has {len(source):,} and "
            f"`{files[1]}` has {len(target):,}; align them again."
        )
    return list(zip(source, target, strict=True))


def read_lines(file: str | Path) -> list[str]:
    r"""Lines of a UTF-8 file, including empty lines; only ``\n`` and ``\r\n`` end a line; a byte-order mark is dropped.

    Raises:
        DataError: the file is missing, damaged or not UTF-8.
    """
    if str(file).lower().endswith(".zip"):
        raise DataError(f"`{file}` is an archive; name the file inside it as `{file}:member`.")
    content = read_content(file).removeprefix(b"\xef\xbb\xbf")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"0x{content[error.start]:02x}"
        raise DataError(
            f"`{file}` must be UTF-8, but line {line:,} has byte {byte} ({error.reason}); convert the file."
        ) from None
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # the text ended with a line feed
    return [line.removesuffix("\r") for line in lines]


def written_lines(lines: Iterable[str]) -> bytes:
    """Content of a file that :func:`read_lines` reads back; line feeds inside a line become spaces."""
    return "".join(line.replace("\n", " ") + "\n" for line in lines).encode("utf-8")


def read_content(file: str | Path) -> bytes:
    """Content of a file, decompressed if its name ends in ``.gz``, or of a member given as ``archive.zip:member``.

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
                checked_members(archive, MAX_MEMBERS)
                with archive.open(match["member"]) as packed:
                    return _expanded(packed, archive.getinfo(match["member"]).compress_size, file)
        return decompress(Path(file).read_bytes(), file)
    except IsADirectoryError:
        raise DataError(f"`{file}` is a folder; give the files in it.") from None
    except FileNotFoundError:
        raise DataError(
            f"`{file}` does not exist; check the path. Files of a recipe are looked for in the folder of --data or, "
            "without it, in the current folder and beside the recipe."
        ) from None
    except (zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"`{file}` is damaged: {error}. Fetch it again.") from None
    except (OSError, RuntimeError, NotImplementedError) as error:  # unreadable; encrypted; unknown compression
        raise DataError(f"`{file}` cannot be read: {error}.") from None


def decompress(content: bytes, name: str | Path) -> bytes:
    """Decompress the content of a file whose name ends in ``.gz``; return that of others as it is.

    Raises:
        DataError: the gzip stream is damaged, or expands to more than text does.
    """
    if not str(name).lower().endswith(".gz"):
        return content
    try:
        return _expanded(gzip.GzipFile(fileobj=BytesIO(content)), len(content), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"`{name}` is damaged: {error}. Fetch it again.") from None


def _expanded(packed: gzip.GzipFile | IO[bytes], size: int, name: str | Path) -> bytes:
    """Read the content of a compressed stream of ``size`` bytes."""
    limit = max(MIN_EXPANDED_BYTES, MAX_EXPANSION * size)
    content = packed.read(limit + 1)
    if len(content) > limit:
        raise DataError(
            f"`{name}` has {size:,} bytes, but expands to more than {limit:,}, as text does not; check where it comes "
            "from, or expand it yourself."
        )
    return content


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
