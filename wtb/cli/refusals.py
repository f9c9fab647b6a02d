"""What commands say of what is not done through a server, and what to do instead."""

from __future__ import annotations

from wtb.core.errors import InputError
from wtb.operations.registry import id_of_command

# What to do where the code is not here, by the option that needs it.
_WITHOUT_CODE = {
    "wait": "without it, `wtb watch` follows what was submitted",
}


def needs_code(option: str) -> InputError:
    """Return why an option is refused where the code of a sweep is not."""
    return InputError(f"--{option} needs the code here; {_WITHOUT_CODE[option]}")


def not_through(server: str, command: str) -> InputError:
    """Return why a command is refused where a server is named.

    Args:
        server: Its URL.
        command: The words of the command, without its arguments.
    """
    from wtb.hosting.api.routes import WITHOUT_ROUTE

    why = WITHOUT_ROUTE.get(id_of_command(command.removeprefix("wtb ")) or "")
    return InputError(
        f"this works beside the database, and not through the server {server}: run it there, or name the database "
        f"with --db{'' if why is None else f'; {why}'}"
    )
