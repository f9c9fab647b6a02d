"use strict";
// All that is here is extra: without it the page says the same, in the order in which it was written.
const root = document.documentElement;

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));

const table = document.querySelector(".heatmap");
if (table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headers = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    if (!headers[column].classList.contains("figure")) return cell.textContent;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  };
  const sort = (column) => {
    const header = headers[column];
    const was = header.getAttribute("aria-sort");
    // The first click puts the best or the first on top.
    const first = header.dataset.better === "higher" ? "descending" : "ascending";
    const now = was === "none" ? first : was === "ascending" ? "descending" : "ascending";
    headers.forEach((one) => one.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
    });
    body.append(...sorted);
  };
  headers.forEach((header, column) => {
    header.setAttribute("aria-sort", "none");
    header.tabIndex = 0;
    header.addEventListener("click", () => sort(column));
    header.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort(column);
      }
    });
  });

  const controls = document.querySelector(".controls");
  if (controls) {
    controls.hidden = false;
    const search = controls.querySelector("input");
    const count = controls.querySelector("output");
    const chips = [...controls.querySelectorAll("button")];
    const columns = new Map(headers.map((header, column) => [header.dataset.node, column]));
    const filter = () => {
      const wanted = new Map();
      for (const chip of chips) {
        if (chip.getAttribute("aria-pressed") !== "true") continue;
        const column = columns.get(chip.dataset.node);
        wanted.set(column, [...(wanted.get(column) || []), chip.dataset.variant]);
      }
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const named = [...columns.values()].filter((column) => headers[column].dataset.node !== undefined);
      const hidden = new Set();
      for (const row of rows) {
        const name = (column) => row.cells[column].dataset.name;
        const said = named.map((column) => name(column).toLowerCase()).join(" ");
        const shown = words.every((word) => said.includes(word)) &&
          [...wanted].every(([column, variants]) => variants.includes(name(column)));
        if (!shown) hidden.add(row.dataset.row);
      }
      document.querySelectorAll("[data-row]").forEach((one) => (one.hidden = hidden.has(one.dataset.row)));
      count.textContent = hidden.size ? `${rows.length - hidden.size} of ${rows.length}` : "";
    };
    search.addEventListener("input", filter);
    chips.forEach((chip) =>
      chip.addEventListener("click", () => {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        filter();
      }));
  }
}
