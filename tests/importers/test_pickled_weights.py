"""Files of ``torch.save``: all that torch reads, nothing else, and no more memory than their size."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import open_checkpoint
from edgeformer.importers.hugging_face.folder import Folder
from edgeformer.importers.hugging_face.pickled import read_pickled
from tests.amounts import examples
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


@pytest.mark.parametrize("archive", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("weights", [WEIGHTS, attributed({"a": WHOLE})], ids=["mapping", "state_dict"])
def test_what_torch_saves_is_read(weights: dict[str, torch.Tensor], archive: bool, tmp_path: Path) -> None:
    file = saved(weights, tmp_path / "pytorch_model.bin", archive=archive)
    expected = torch.load(file, weights_only=True)
    tensors = read_pickled(file)
    assert list(tensors) == list(expected)
    for name, tensor in tensors.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name])
    checkpoint = open_checkpoint(Folder(tmp_path, {}, {}, {}))
    array = checkpoint.take(next(iter(tensors)))
    assert array.flags.aligned
    assert array.tolist() == WHOLE.tolist()


PERSISTENT = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
GIGABYTES = b"\x8a\x05" + (4 << 30).to_bytes(5, "little")
FORTY = b"\x8a\x06" + (1 << 40).to_bytes(6, "little")


def tensor(
    count: bytes = b"K\x06", offset: bytes = b"K\x00", shape: bytes = b"K\x06\x85", strides: bytes = b"K\x01\x85"
) -> bytes:
    """Instructions for a tensor of a storage of six numbers."""
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + PERSISTENT + count + b"tQ" + offset + shape + strides + b"\x89}tR"


def mapping(value: bytes, key: bytes = b"X\x01\x00\x00\x00a") -> bytes:
    return b"\x80\x02}" + key + value + b"s."


NESTED = b"K\x00" + b"\x85q\x00h\x00\x86" * 40 + b"\x85"
HOSTILE = {
    "a call that allocates": (mapping(b"c__builtin__\nbytearray\n" + GIGABYTES + b"\x85R"), "bytearray"),
    "a call of code": (mapping(b"cposix\nsystem\nX\x02\x00\x00\x00id\x85R"), "posix.system"),
    "bytes without end": (mapping(b"\x8e" + (1 << 40).to_bytes(8, "little")), "read as weights only"),
    "text without end": (mapping(b"X\xff\xff\xff\x7f"), "read as weights only"),
    "a number without end": (mapping(b"\x8b\xff\xff\xff\x7f"), "read as weights only"),
    "a bytearray without end": (mapping(b"\x96" + (1 << 40).to_bytes(8, "little")), "read as weights only"),
    "a memo without end": (mapping(b"Nr\xff\xff\xff\xff" + tensor() + b"0"), "POP"),
    "a key that takes forever to hash": (mapping(b"N", NESTED), "keys are not names"),
    "values in values": (mapping(NESTED), "something other than weights under 'a'"),
    "a huge storage": (mapping(tensor(count=FORTY)), "ends too early|another size"),
    "a huge storage and tensor": (
        mapping(tensor(count=FORTY, shape=FORTY + b"\x85")),
        "ends too early|another size",
    ),
    "a repeated number": (mapping(tensor(shape=FORTY + b"\x85", strides=b"K\x00\x85")), "larger than what is stored"),
    "a range after the storage": (mapping(tensor(offset=b"K\x01")), "larger than what is stored"),
    "a range before the storage": (mapping(tensor(strides=b"J\xff\xff\xff\xff\x85")), "damaged shape"),
    "axes without end": (
        mapping(tensor(shape=b"(" + b"K\x01" * 99 + b"t", strides=b"(" + b"K\x01" * 99 + b"t")),
        "shape",
    ),
    "another type of axis": (mapping(tensor(shape=b"X\x01\x00\x00\x006\x85")), "damaged shape"),
    "a function for a tensor": (mapping(b"ctorch._utils\n_rebuild_tensor_v2\n"), "something other than weights"),
    "an attribute of a function": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aNsb.", "no mapping"),
    "no end": (b"\x80\x02}", "read as weights only"),
    "nothing": (b"", "read as weights only"),
    "containers without end": (b"\x80\x02" + b"}" * (3 << 20), "read as weights only"),
    "a mapping that takes forever to make": (
        mapping(b"ccollections\nOrderedDict\n]" + NESTED + b"N\x86a\x85R"),
        "read as weights only",
    ),
    "escapes of a terminal": (mapping(b"c\x1b[2J\nx\n"), r"\\x1b"),
}


def write_archive(file: Path, content: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", bytes(24))
        archive.writestr("archive/version", "3\n")


def write_stream(file: Path, content: bytes) -> None:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    keys = pickle.dumps(["0"], 2)
    file.write_bytes(
        b"".join(pickle.dumps(part, 2) for part in head) + content + keys + struct.pack("<Q", 6) + bytes(24)
    )


LIMITED = """
import resource, sys
from pathlib import Path
from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.pickled import read_pickled

size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (700 << 20),) * 2)
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        print(file.name, [tuple(tensor.shape) for tensor in read_pickled(file).values()])
    except ImporterError as error:
        print(file.name, error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit of memory")
def test_hostile_files_are_refused_in_little_memory(tmp_path: Path) -> None:
    writers: dict[str, Callable[[Path, bytes], None]] = {"archive": write_archive, "stream": write_stream}
    for number, (content, _) in enumerate([(mapping(tensor()), ""), *HOSTILE.values()]):
        for name, write in writers.items():
            write(tmp_path / f"{number:02} {name}", content)
    write_archive(tmp_path / "99", bytes(1 << 20) + mapping(tensor()), zipfile.ZIP_BZIP2)
    lines = python(LIMITED, tmp_path).stdout.splitlines()
    assert lines[:2] == ["00 archive [(6,)]", "00 stream [(6,)]"]
    assert len(lines) == 2 * len(HOSTILE) + 3
    for number, (what, (_, words)) in enumerate(HOSTILE.items(), 1):
        for line in lines[2 * number : 2 * number + 2]:
            assert re.search(words, line), what
            assert "\x1b" not in line
            assert "cannot be read as weights only" in line
    assert "are compressed" in lines[-1]


@pytest.mark.parametrize("archive", FORMATS.values(), ids=FORMATS)
@examples(60, 300)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(
    archive: bool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = saved(WEIGHTS, tmp_path_factory.getbasetemp() / "damaged", archive=archive)
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    try:
        tensors = read_pickled(file)
    except ImporterError:
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) <= 4 * len(content)
    assert all(tensor.clone().shape == tensor.shape for tensor in tensors.values())
