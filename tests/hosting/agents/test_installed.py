"""The packages that the tests beside this one need are installed."""

from importlib.util import find_spec


def test_the_sdk_is_installed() -> None:
    assert find_spec("mcp"), "run `make install`: the extra `mcp` is new"
