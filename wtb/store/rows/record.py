"""What a record is: the values of a row by the names of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """A row as it is read. What a kind annotates are its columns, in their order, after those of what it derives from.

    A kind is a frozen dataclass with the methods that are here: `dataclass` would compile six for each, and commands
    start with all kinds.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()  # the names of the columns, as `dataclass` gives them

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: Any, **named: Any) -> None:
        columns = self.__match_args__
        if len(values) + len(named) != len(columns):
            raise TypeError(f"{type(self).__name__} has {len(columns)} columns")
        values += tuple(named[name] for name in columns[len(values) :])
        for name, value in zip(columns, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a record is never changed")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
