"""What a record is: the values of a row by the names of its columns."""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True)
class Record(msgspec.Struct, frozen=True):
    """A row as it is read. What a kind annotates are its columns, in their order, after those of what it derives from.

    A struct and no dataclass, since each command imports all kinds: a dataclass compiles its methods when it is made.
    """
