"""Committed bundles in place of exported ones."""

from __future__ import annotations

from tests.committed import small_bundle as small_bundle
from tests.committed import small_bundle_int4 as small_bundle_int4
from tests.committed import small_bundle_int8 as small_bundle_int8
from tests.committed import small_bundles as small_bundles
from tests.committed import translator as translator
