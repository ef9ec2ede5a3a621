"use strict";
// Everything here is a convenience: without it the page reads the same, unsorted.
(() => {
  const openAll = () => document.querySelectorAll("details:not(.column, .cell)").forEach((d) => { d.open = true; });
  window.addEventListener("beforeprint", openAll);

  const openTarget = () => {
    const part = location.hash && document.getElementById(location.hash.slice(1));
    for (let at = part; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (part) part.scrollIntoView();
  };
  window.addEventListener("hashchange", openTarget);
  openTarget();

  const table = document.getElementById("trial-table");
  if (!table) return;
  const body = table.tBodies[0];
  // Read on first use: a page of thousands of trials opens sooner.
  let read = null;
  const rows = () => {
    read ??= Array.from(body.rows, (row) => ({ row, text: row.textContent.toLowerCase() }));
    return read;
  };
  const controls = document.getElementById("controls");
  const search = document.getElementById("search");
  const selects = Array.from(controls.querySelectorAll("select"));
  const count = document.getElementById("count");

  const tell = (shown) => {
    const all = body.rows.length.toLocaleString("en");
    count.textContent = `${shown.toLocaleString("en")} of ${all} trials`;
  };
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    const chosen = selects.filter((s) => s.value).map((s) => [Number(s.dataset.column), s.value]);
    let shown = 0;
    for (const { row, text } of rows()) {
      const fits = text.includes(wanted)
        && chosen.every(([column, value]) => row.cells[column].textContent === value);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    tell(shown);
  };

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const text = "v" in cell.dataset ? cell.dataset.v : cell.textContent;
    const number = text === "" ? NaN : Number(text);
    return { text, number, empty: text === "" };
  };
  const compare = (a, b) => {
    if (Number.isNaN(a.number) || Number.isNaN(b.number)) {
      return a.text < b.text ? -1 : a.text > b.text ? 1 : 0;
    }
    return a.number - b.number;
  };
  const sort = (header, column) => {
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = rows().map((item, place) => ({ item, place, key: keyOf(item.row, column) }));
    // Trials without a value come last either way: they are not the smallest.
    keyed.sort((a, b) => (a.key.empty - b.key.empty)
      || (down ? -1 : 1) * compare(a.key, b.key) || a.place - b.place);
    const sorted = document.createDocumentFragment();
    for (const { item } of keyed) sorted.append(item.row);
    body.append(sorted);
  };

  Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sort(header, column));
    header.replaceChildren(button);
  });
  search.addEventListener("input", filter);
  selects.forEach((select) => select.addEventListener("change", filter));
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.hidden = false;
  tell(body.rows.length);
})();
