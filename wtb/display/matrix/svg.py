"""The matrix as a picture: the terminal table as SVG, for a README or a slide. It refers to nothing outside itself."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from wtb.display.matrix import table

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument


WIDTH = 96


def render(document: MatrixDocument, width: int = WIDTH) -> str:
    """An SVG of the table at `width` columns."""
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    console.print(Text.from_ansi(table.render(document, width, color=True)))
    # rich's own format fetches fonts from the network; any monospaced font of the reader's will do.
    local = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=f"wtb matrix {document['sweep']['name']}", code_format=local, unique_id="wtb")
