"""A sweep that a node process has prepared: the runner reads its file, and only the process its code and cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, get_args

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.authoring.code.recipe import Recipe
from wtb.config.run_options import Rlimits
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.stored_spec import DataFinding, DataFindingKind
from wtb.execution.described_code import (
    DescribedCode,
    bind_described,
    checked_description,
    read_description,
    start_process,
)
from wtb.execution.sandbox.framing import NO_CODE, PreparedHead, ReadNewCase
from wtb.execution.sandbox.messages import read_frame, written_values
from wtb.execution.sandbox.node_process import NO_MESSAGE, NodeProcess, ProcessDied, Request
from wtb.execution.sandbox.pool import setup_of
from wtb.planning.binding import Bound
from wtb.planning.cases import CaseSource
from wtb.planning.checks import notification_targets
from wtb.planning.picking import Only
from wtb.planning.prepare import Prepared
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.files.workspaces import Workspaces
from wtb.store.runs.submission import NewCase


@frozen
class PreparedSweep(Prepared):
    """A sweep whose cases `process`, a node process, encodes."""

    process: NodeProcess = field(kw_only=True)

    def encode(self, workspaces: Workspaces) -> Iterator[NewCase]:
        """Yield the cases as they are stored, once. Their files are added to the store of the project.

        Raises:
            InputError: If a case cannot be read any more.
            ProcessDied: If the process ends, or sends something else.
        """
        total = 0
        while total < self.cases:
            frame = self.process.ask("cases", None, Request())
            if frame.kind == "refused":
                raise InputError(storable(str(frame.head)))
            try:
                cases = read_frame(frame, "cases", lambda sent, blobs: [_as_case(case, blobs) for case in sent])
                total += len(cases)
                if not cases or total > self.cases:
                    raise Malformed(f"found {total:,} cases, expected {self.cases:,}")
                # Before any case is stored: a row must not refer to files that are not in the store.
                for case in cases:
                    self.process.handover(None).take(case.workspace, case.files)
            except Malformed as error:
                raise ProcessDied(NO_MESSAGE.format(error)) from error
            yield from cases


@contextmanager
def prepared_apart(spec: SweepSpec, file: Path, workspaces: Workspaces, owner: str) -> Iterator[Prepared]:
    """Have a node process prepare the sweep of a file. The process ends with this context.

    Args:
        spec: The sweep of that file, in the session that it is submitted to.
        file: The sweep file.
        workspaces: The directories that the process works in; their store takes the files of cases.
        owner: The owner of the process.

    Yields:
        The sweep, checked. Its code is known by its description.

    Raises:
        WTBError: With everything that is wrong, one line each.
        ProcessDied: The process ended during the preparation.
    """
    # The limits of the sweep are for nodes, not for reading its cases.
    run = spec.run.model_copy(update={"rlimits": Rlimits()})
    setup = setup_of(Recipe(None).text(), NO_CODE, run, workspaces, owner)
    process = start_process(replace(setup, head={**setup.head, "prepare": str(file.absolute())}))
    try:
        bound, head = read_description(process, lambda head: _as_bound(spec, process, head))
        yield PreparedSweep(
            bound=bound,
            choices=head["choices"],
            baseline=head["baseline"],
            source=CaseSource(str(spec.cases), spec.folder, lambda: iter(())),
            cases=head["cases"],
            only=Only(),
            notify=notification_targets(spec),
            clusters=head["clusters"],
            findings=head["findings"],
            process=process,
        )
    finally:
        process.close()


def _as_bound(spec: SweepSpec, process: NodeProcess, sent: Any) -> tuple[Bound, PreparedHead]:
    """Read the preparation of a process, which user code may have forged. Raises as `shaped` expects."""
    bound = bind_described(spec, DescribedCode(checked_description(sent["code"]), process))
    head = sent["prepared"]
    prepared: PreparedHead = {
        "choices": [_as_choices(bound, choices) for choices in head["choices"]],
        "baseline": boundary.optional(lambda choices: _as_choices(bound, choices), head["baseline"]),
        "cases": boundary.count(head["cases"]),
        "clusters": [boundary.optional(boundary.text, cluster) for cluster in head["clusters"]],
        "findings": [_as_finding(finding) for finding in head["findings"]],
        "tools": {
            boundary.name(server): {boundary.name(tool): boundary.text(version) for tool, version in tools.items()}
            for server, tools in head["tools"].items()
        },
    }
    if prepared["clusters"] and len(prepared["clusters"]) != prepared["cases"]:
        raise Malformed("the clusters of other cases than it has")
    versions = {server: _answering(tools) for server, tools in prepared["tools"].items()}
    return replace(bound, workflow=replace(bound.workflow, versions=versions)), prepared


def _answering(tools: Mapping[str, str]) -> Any:
    return lambda: tools


def _as_choices(bound: Bound, sent: Mapping[str, str]) -> dict[str, str]:
    """Read a combination: it chooses among the variants that the sweep varies."""
    unknown = [(node, variant) for node, variant in sent.items() if variant not in bound.vary[node]]
    if unknown:
        raise Malformed(f"a combination that chooses {unknown[0]!r:.100}")
    return dict(sent)


def _as_finding(sent: DataFinding) -> DataFinding:
    if sent["kind"] not in get_args(DataFindingKind):
        raise Malformed(f"a finding of kind {sent['kind']!r:.100}")
    return {
        "kind": sent["kind"],
        "cases": boundary.count(sent["cases"]),
        "sentence": boundary.text(sent["sentence"]),
        "key": boundary.text(sent["key"]),
    }


def _as_case(sent: ReadNewCase, blobs: Sequence[bytes]) -> NewCase:
    id, values, expected, tags, workspace, files, cluster = sent
    return NewCase(
        boundary.text(id),
        written_values(values, blobs),
        None if expected is None else boundary.typed_json(blobs[boundary.count(expected)]),
        [boundary.text(tag) for tag in tags],
        boundary.optional(boundary.digest_of_file, workspace),
        boundary.files(files),
        boundary.optional(boundary.text, cluster),
    )
