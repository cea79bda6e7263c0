"""Files of ``torch.save``: all that torch reads, nothing else, and no more memory than their size."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint
from edgeformer.importers.pickled import load_weights, read_pickled
from tests.amounts import cases
from tests.commands import python

FORMATS = {"archive": True, "stream": False}
"""Whether a file is an archive, as since torch 1.6."""
WHOLE = torch.arange(6.0).view(2, 3)
WEIGHTS: dict[str, torch.Tensor] = {
    "weight": WHOLE,
    "tied": WHOLE,
    "transposed": WHOLE.t(),
    "row": WHOLE[1],
    "half": torch.ones(3).half(),
    "odd": torch.ones(3, dtype=torch.bool),
    "bfloat16": torch.randn(5).bfloat16(),
    "double": torch.randn(2, 2).double(),
    "version": torch.tensor(3),
    "empty": torch.zeros(0, 4),
    "parameter": torch.nn.Parameter(torch.randn(4, 3)),
}


def saved(weights: Any, file: Path, *, archive: bool) -> Path:
    torch.save(weights, file, _use_new_zipfile_serialization=archive)
    return file


def attributed(weights: dict[str, torch.Tensor]) -> OrderedDict[str, torch.Tensor]:
    """As ``state_dict`` returns it."""
    module = torch.nn.ParameterDict({name: torch.nn.Parameter(weight) for name, weight in weights.items()})
    state: OrderedDict[str, torch.Tensor] = module.state_dict()  # type: ignore[assignment]
    assert hasattr(state, "_metadata")
    return state


def test_what_torch_saves_is_read(tmp_path: Path) -> None:
    mappings: list[Mapping[str, torch.Tensor]] = [WEIGHTS, attributed({"a": WHOLE})]
    files = [
        saved(weights, tmp_path / f"{number}.{archive}", archive=archive)
        for number, weights in enumerate(mappings)
        for archive in FORMATS.values()
    ]
    for file in files:
        tensors = load_weights(file)
        expected = torch.load(file, weights_only=True)
        assert list(tensors) == list(expected)
        for name, tensor in tensors.items():
            assert tensor.dtype == expected[name].dtype
            assert torch.equal(tensor, expected[name])
            if tensor.is_floating_point() and tensor.dtype != torch.bfloat16:
                array = Checkpoint([file], {name: tensor.detach}).take(name)
                assert array.flags.aligned
                assert array.tolist() == expected[name].tolist()


# Instructions of pickles.
PERSISTENT = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
GIGABYTES = b"\x8a\x05" + (4 << 30).to_bytes(5, "little")
FORTY = b"\x8a\x06" + (1 << 40).to_bytes(6, "little")


def tensor(
    count: bytes = b"K\x06", offset: bytes = b"K\x00", shape: bytes = b"K\x06\x85", strides: bytes = b"K\x01\x85"
) -> bytes:
    """A tensor of a storage of six numbers."""
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + PERSISTENT + count + b"tQ" + offset + shape + strides + b"\x89}tR"


def mapping(value: bytes, key: bytes = b"X\x01\x00\x00\x00a") -> bytes:
    return b"\x80\x02}" + key + value + b"s."


NESTED = b"K\x00" + b"\x85q\x00h\x00\x86" * 40 + b"\x85"
HOSTILE = {
    "a call that allocates": (mapping(b"c__builtin__\nbytearray\n" + GIGABYTES + b"\x85R"), "too much memory"),
    "a call of code": (mapping(b"cposix\nsystem\nX\x02\x00\x00\x00id\x85R"), r"posix\.system"),
    "bytes without end": (mapping(b"\x8e" + (1 << 40).to_bytes(8, "little")), "Unsupported operand 142"),
    "text without end": (mapping(b"X\xff\xff\xff\x7f"), "too much memory|EOFError"),
    "values in values": (mapping(NESTED), "something other than weights under 'a'|AssertionError"),
    "a huge tensor": (mapping(tensor(count=FORTY, shape=FORTY + b"\x85")), "Trying to resize|can't allocate memory"),
    "a repeated number": (mapping(tensor(shape=FORTY + b"\x85", strides=b"K\x00\x85")), "its weights share memory"),
    "a range after the storage": (mapping(tensor(offset=b"K\x01")), "Trying to resize|wrong byte size"),
    "a range before the storage": (mapping(tensor(strides=b"J\xff\xff\xff\xff\x85")), "overflowed"),
    "another type of axis": (mapping(tensor(shape=b"X\x01\x00\x00\x006\x85")), "TypeError"),
    "a key that is not a name": (mapping(tensor(), b"K\x00"), "keys are not names"),
    "a function for a tensor": (
        mapping(b"ctorch._utils\n_rebuild_tensor_v2\n"),
        "something other than weights|AssertionError",
    ),
    "no mapping": (b"\x80\x02]" + tensor() + b"a.", "no mapping from names to weights"),
    "nothing": (b"", "EOFError|Unsupported operand 6"),
    "escapes of a terminal": (mapping(b"c\x1b[2J\nx\n"), r"GLOBAL +\[2J"),
}


def write_archive(file: Path, content: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", bytes(24))
        archive.writestr("archive/version", "3\n")


def write_stream(file: Path, content: bytes) -> None:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    content = content.replace(b"tQ", b"NtQ")  # no view of the storage
    keys = pickle.dumps(["0"], 2)
    file.write_bytes(
        b"".join(pickle.dumps(part, 2) for part in head) + content + keys + struct.pack("<Q", 6) + bytes(24)
    )


IN_ONE_PROCESS = """
import sys
from pathlib import Path
from random import Random
from edgeformer.importers import pickled

files = sorted(Path(sys.argv[1]).iterdir())
pickled.main([files[0]])  # limits this process, too
for file in files:
    try:
        print(f"{file.name}:", [tuple(tensor.shape) for tensor in pickled.load_weights(file).values()])
    except Exception as error:
        print(f"{file.name}:", pickled.reason(error))
"""
LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit of memory")


class Exploit:
    """Its pickle would create a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def write_damaged(folder: Path, count: int) -> None:
    """Write files with some other bytes, or only the beginning of them."""
    random = Random(0)
    for name, archive in FORMATS.items():
        whole = saved(WEIGHTS, folder / f"damaged {name} whole", archive=archive).read_bytes()
        for number in range(count):
            content = bytearray(whole)
            for _ in range(random.randint(1, 4)):
                content[random.randrange(len(content))] = random.randrange(256)
            cut = random.choice((len(content), random.randrange(len(content))))
            (folder / f"damaged {name} {number}").write_bytes(content[:cut])


@LINUX
def test_hostile_and_damaged_files_are_refused_in_little_memory(tmp_path: Path) -> None:
    writers: dict[str, Callable[[Path, bytes], None]] = {"archive": write_archive, "stream": write_stream}
    for number, (content, _) in enumerate([(mapping(tensor()), ""), *HOSTILE.values()]):
        for name, write in writers.items():
            write(tmp_path / f"{number:02} {name}", content)
    write_archive(tmp_path / "99", bytes(1 << 20) + mapping(tensor()), zipfile.ZIP_BZIP2)
    touched = tmp_path.with_name("touched")
    torch.save({"weight": Exploit(touched)}, tmp_path / "99 exploit")
    write_damaged(tmp_path, cases(30, 300))
    said = dict(line.split(": ", 1) for line in python(IN_ONE_PROCESS, tmp_path).stdout.splitlines())
    assert said.keys() == {file.name for file in tmp_path.iterdir()}, "each is read or refused"
    assert not touched.exists()
    assert said["99 exploit"] == "Unsupported global: GLOBAL getattr"
    assert "are compressed" in said["99"]
    assert all("\x1b" not in words for words in said.values())
    for name in writers:
        assert said[f"00 {name}"] == "[(6,)]"
        assert said[f"damaged {name} whole"].startswith("[(2, 3), ")
        for number, (what, (_, words)) in enumerate(HOSTILE.items(), 1):
            assert re.search(words, said[f"{number:02} {name}"]), what


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [HOSTILE["a call that allocates"][0], mapping(b"N", NESTED)], ids=["bytes", "hashes"]
)
def test_a_process_reads_a_file_first(content: bytes, tmp_path: Path) -> None:
    good = saved(WEIGHTS, tmp_path / "1.bin", archive=True)
    assert read_pickled([good])[0].keys() == WEIGHTS.keys()
    write_archive(tmp_path / "2.bin", content)
    with pytest.raises(ImporterError, match=r"or its parts cannot be read .*: it takes too much memory.* model"):
        read_pickled([good, tmp_path / "2.bin"])
