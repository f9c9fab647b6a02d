"""The example that `make demo` runs: its data, its algorithms, and the sweep through the command line."""

import itertools
import json
import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from examples.retrieval import cases, chunkers, corpus, retrievers, scores
from examples.retrieval.index import Index, terms
from examples.retrieval.library import Chunking, Library, open_library
from tests.support.project import run_program
from tests.support.prose import sentence

ROOT = Path(__file__).parents[2]
CHUNKINGS: list[Chunking] = [("whole", {}), ("sentences", {}), ("windows", {"size": 60, "overlap": 30})]


@pytest.fixture(scope="module")
def library() -> Library:
    return open_library()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the demo after two cases, and its output.

    In one process at a time, as each builds the indexes and the latent space anew.
    """
    folder = tmp_path_factory.mktemp("retrieval")
    options = ["--output", str(folder / "demo"), "--limit", "2", "--concurrency", "1"]
    command = [sys.executable, "-m", "examples.retrieval.demo", *options]
    env = os.environ | {"WTB_DATABASE_URL": f"sqlite:///{folder / 'wtb.db'}"}
    return folder / "demo", run_program(command, cwd=ROOT, env=env, timeout=300, code=0).stdout


def test_the_corpus_has_350_documents_and_symmetric_judgements() -> None:
    read = corpus.read()
    assert len(read.documents) == 350
    assert np.array_equal(read.similarity, read.similarity.T)
    assert np.array_equal(np.diag(read.similarity), np.ones(50))
    off_diagonal = read.similarity[~np.eye(50, dtype=bool)]
    assert off_diagonal.min() > 0  # every pair was judged, and the lowest judgement is not 0
    assert off_diagonal.max() == 1


def test_37_queries_cover_the_143_relevant_pairs() -> None:
    queries = list(cases.queries())
    pairs = {frozenset((case["id"], other)) for case in queries for other in case["expected"]}
    assert len({case["id"] for case in queries}) == len(queries) == 37
    assert len(pairs) == 143
    assert all(case["id"] not in case["expected"] for case in queries)
    assert all(corpus.RELEVANT <= relevance <= 1 for case in queries for relevance in case["expected"].values())


def test_a_missing_corpus_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(corpus.CorpusMissing, match=sentence("pip install {}", "gensim")):
        corpus.read()


def test_sentences_keep_every_word() -> None:
    text = 'It rained. "Not much," she said. At 4.30pm, U.S. time, it stopped! Did it?'
    sentences = ["It rained.", '"Not much," she said.', "At 4.30pm, U.S. time, it stopped!", "Did it?"]
    assert chunkers.sentences(text) == sentences


def test_windows_overlap_and_end_with_the_text() -> None:
    assert chunkers.windows("a b c d e f g", size=4, overlap=2) == ["a b c d", "c d e f", "e f g"]
    assert chunkers.windows("a b", size=4, overlap=2) == ["a b"]
    with pytest.raises(ValueError, match=sentence("less than {}", "size")):
        chunkers.windows("a b", size=2, overlap=2)


def test_terms_are_singular_and_without_stop_words() -> None:
    words = terms("The parties' senators said it: 2 attacks, 300 cries on a bus")
    assert words == ["party", "senator", "attack", "300", "cry", "bus"]


def test_retrievers_give_the_textbook_figures() -> None:
    index = Index([("a", "cat cat dog"), ("b", "dog bird"), ("c", "fish")])
    idf_cat, idf_dog = math.log(1 + 3 / 1), math.log(1 + 3 / 2)
    cat = (1 + math.log(2)) * idf_cat
    assert retrievers.tfidf(index, ["cat"])[0] == pytest.approx(idf_cat * cat / math.hypot(cat, idf_dog))

    bm25 = retrievers.bm25(index, ["cat"], k1=1.2, b=0.75)
    assert bm25[0] == pytest.approx(math.log(1 + 2.5 / 1.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2)))
    assert bm25[1:].tolist() == [0, 0]

    likelihood = retrievers.dirichlet(index, ["dog"], mu=10)
    expected = [math.log((count + 10 * 2 / 6) / (length + 10)) for count, length in ((1, 3), (1, 2), (0, 1))]
    assert np.diff(likelihood) == pytest.approx(np.diff(expected))  # equal but for a constant


def test_a_full_latent_space_gives_the_tfidf_cosine(library: Library) -> None:
    index = library.index(("whole", {}))
    space = retrievers.latent_space(index, dims=len(index))
    query = terms(library.corpus.documents["lee-07"])
    full = retrievers.lsa(index, query, space, retrievers.fold_in(index, space))
    assert full == pytest.approx(retrievers.tfidf(index, query))


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=lambda chunking: chunking[0])
def test_every_retriever_finds_a_document_by_its_own_words(library: Library, chunking: Chunking) -> None:
    index = library.index(chunking)
    query = terms(library.corpus.documents["lee-13"])
    space, vectors = library.space(100), library.vectors(chunking, 100)
    for relevance in (
        retrievers.tfidf(index, query),
        retrievers.bm25(index, query, k1=1.2, b=0.75),
        retrievers.dirichlet(index, query, mu=300),
        retrievers.lsa(index, query, space, vectors),
    ):
        assert relevance.shape == (len(index),)
        assert index.owners[int(relevance.argmax())] == "lee-13"


def test_threads_that_ask_at_once_share_one_index() -> None:
    library = open_library()
    ready = threading.Barrier(8)

    def ask() -> Index:
        ready.wait(10)
        return library.index(("sentences", {}))

    with ThreadPoolExecutor(8) as pool:
        indexes = [asked.result(60) for asked in [pool.submit(ask) for _ in range(8)]]
    assert len({id(index) for index in indexes}) == 1


def test_scores_follow_their_definitions() -> None:
    case = SimpleNamespace(expected={"a": 1.0, "b": 0.5})

    def result_of(*ranking: str) -> Any:
        return SimpleNamespace(state={"ranking": list(ranking)})

    assert scores.ndcg(case, result_of("a", "b", "x")) == 1
    expected = (0.5 / math.log2(3) + 1 / math.log2(4)) / (1 + 0.5 / math.log2(3))
    assert scores.ndcg(case, result_of("x", "b", "a")) == pytest.approx(expected)
    assert scores.ndcg(case, result_of("x")) == scores.recall(case, result_of("x")) == 0
    assert scores.recall(case, result_of("x", "b")) == 0.5
    eleventh = [*"cdefghijkl", "a"]
    assert scores.ndcg(case, result_of(*eleventh)) == scores.recall(case, result_of(*eleventh)) == 0


def test_the_sweep_runs_every_combination_and_shares_prefixes(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    report = json.loads((folder / "matrix.json").read_text("utf-8"))
    assert report["cells"]["total"] == report["cells"]["succeeded"] == 24 * 2
    assert report["node_runs"]["executed"] == (3 + 6 + 24 + 24) * 2
    assert report["node_runs"]["unshared"] == 24 * 4 * 2
    combinations = {tuple(sorted(row["combination"].items())) for row in report["rows"]}
    searches = ("tfidf", "bm25", "dirichlet", "lsa")
    varied = itertools.product(("whole", "sentences", "windows"), ("whole", "lead"), searches)
    assert combinations == {(("chunk", c), ("query", q), ("retrieve", r)) for c, q, r in varied}
    assert all(0 <= row["metrics"][name]["mean"] <= 1 for row in report["rows"] for name in ("ndcg", "recall"))


def test_the_demo_leaves_its_report_and_the_matrix_in_three_formats(demo: tuple[Path, str]) -> None:
    folder, printed = demo
    assert {file.name for file in folder.iterdir()} == {"matrix.json", "matrix.csv", "matrix.md", "report.html"}
    assert all(file.stat().st_size > 0 for file in folder.iterdir())
    assert str(folder / "report.html") in printed
