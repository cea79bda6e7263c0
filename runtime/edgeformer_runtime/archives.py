"""Zip files from strangers."""

from __future__ import annotations

import zipfile


def checked_members(archive: zipfile.ZipFile, limit: int) -> list[zipfile.ZipInfo]:
    """The members of a zip file, none of which takes more memory to read than is asked for.

    Args:
        archive: the zip file.
        limit: maximum number of members.

    Raises:
        BadZipFile: there are more, or one is compressed by bzip2 or LZMA, which unpack any amount at once.
    """
    members = archive.infolist()
    if len(members) > limit:
        raise zipfile.BadZipFile(f"it has {len(members):,} members, more than {limit:,}")
    if {member.compress_type for member in members} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile("it is compressed otherwise than zip files usually are")
    return members
