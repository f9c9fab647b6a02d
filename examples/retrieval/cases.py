"""The cases: judged documents to which people found others similar."""

from collections.abc import Iterator
from typing import Any

from examples.retrieval.corpus import JUDGED, judged_id, read


def queries() -> Iterator[dict[str, Any]]:
    """37 cases; `expected` maps the ids of all documents relevant to the case's to their similarity.

    People found 143 pairs of documents similar. The first document of each pair asks, so that every
    pair is looked for, most of them from both sides (256 relevant documents over all cases).
    """
    corpus = read()
    for number in range(JUDGED):
        document = judged_id(number)
        relevant = corpus.relevant(number)
        if any(other > document for other in relevant):
            text = corpus.documents[document]
            yield {"id": document, "input": {"document": document, "text": text}, "expected": relevant}
