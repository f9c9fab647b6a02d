"""Point links at the pages that results, statistics, regressions and report were split into. Run in the root."""
import re, subprocess
from pathlib import Path
MAP = {
 "results.md#the-matrix": "results.md", "results.md#views-of-the-matrix": "matrix-views.md", "results.md#the-decision": "decide.md",
 "results.md#why-cells-failed": "cells.md#why-cells-failed", "results.md#interrupting-and-resuming": "resume.md",
 "results.md#when-code-changes": "code-changes.md", "results.md#where-things-are": "exit-codes.md#where-wtb-stores-sweeps",
 "results.md#exit-codes": "exit-codes.md", "results.md#statistics": "statistics.md#methods", "results.md#pool-repeated-sweeps": "pool.md",
 "results.md#the-json-contract": "matrix-json.md", "results.md#cells-as-json": "cells.md#cells-as-json", "results.md#cells-as-csv": "cells.md#cells-as-csv",
 "results.md#outputs-side-by-side": "cells.md#compare-outputs-side-by-side", "results.md#sweeps-as-json": "exit-codes.md#sweeps-as-json", "results.md#events": "events.md",
 "statistics.md#good-enough": "good-enough.md", "statistics.md#missing-cells": "missing-cells.md", "statistics.md#losses-too-rare-to-show": "missing-cells.md#losses-too-rare-to-show",
 "statistics.md#no-clear-winner": "how-many-cases.md", "statistics.md#figures-over-rows": "class-figures.md", "statistics.md#clusters": "how-many-cases.md#clusters",
 "statistics.md#tags": "how-many-cases.md#tags", "statistics.md#where-noise-comes-from": "how-many-cases.md#cases-or-repeats", "statistics.md#while-it-runs": "looks.md#before-the-end",
 "statistics.md#what-was-tried-before": "looks.md#repeated-looks", "statistics.md#what-makes-the-difference": "effects.md",
 "statistics.md#checked-against-known-truth": "simulated.md",
 "regressions.md#gates": "gates.md", "regressions.md#night-after-night": "nights.md", "regressions.md#verdicts": "verdicts.md", "regressions.md#margins": "verdicts.md#margins",
 "regressions.md#noise": "verdicts.md#noise", "regressions.md#the-comparison-as-json": "comparison-json.md", "report.md#the-evidence-as-json": "report-json.md",
}
files = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True).stdout.split()
for f in files:
    p = Path(f); t = p.read_text("utf-8")
    n = re.sub(r"(?<![\w-])((?:results|statistics|regressions|report)\.md#[a-z0-9-]+)", lambda m: MAP.get(m[1], m[1]), t)
    if n != t: p.write_text(n, "utf-8"); print(f)
