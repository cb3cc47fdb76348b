"use strict";

// The theme's script reads this sidebar whenever a page has margin notes, and throws on pages that have none to show.
if (!document.querySelector("div.bd-sidebar-secondary")) {
  const sidebar = document.createElement("div");
  sidebar.className = "bd-sidebar-secondary";
  sidebar.hidden = true;
  document.body.append(sidebar);
}

// A list role asks for list items, and the bibliography's entries have a role of their own.
for (const list of document.querySelectorAll(".citation-list[role=list]")) list.removeAttribute("role");

// The theme unfolds pages below a page with a mere arrow.
for (const summary of document.querySelectorAll(".bd-sidebar-primary summary")) {
  const page = summary.closest("li")?.querySelector("a")?.textContent.trim() ?? "";
  summary.setAttribute("aria-label", `Pages below ${page}`);
}

for (const box of document.querySelectorAll("input.task-list-item-checkbox")) {
  box.setAttribute("aria-label", box.parentElement.textContent.trim());
}

// Browsers may break a line between a formula and the comma after it, or the bracket before it.
for (const formula of document.querySelectorAll("span.math")) {
  const before = formula.previousSibling;
  const after = formula.nextSibling;
  const opening = before?.data?.match(/[(\[“]+$/)?.[0].length ?? 0;
  const closing = after?.data?.match(/^[^\s\w]+/)?.[0].length ?? 0;
  if (!opening && !closing) continue;
  const tied = document.createElement("span");
  tied.className = "tied";
  formula.before(tied);
  if (opening) tied.append(before.splitText(before.length - opening));
  tied.append(formula);
  if (closing) {
    after.splitText(closing);
    tied.append(after);
  }
}

// Whatever scrolls sideways has to be reachable without a mouse; whatever does not should not cost a tab stop.
// An observer, because folded solutions and code get their size only when they are opened.
const scrollable = "pre, .cell_output .output, .pst-scrollable-table-container, mjx-container, div.math";
function markScrollable(box) {
  const scrolls = box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible";
  if (scrolls) {
    box.tabIndex = 0;
    box.dataset.scrolls = "";
  } else if ("scrolls" in box.dataset) {
    box.removeAttribute("tabindex");
    delete box.dataset.scrolls;
  }
}
window.addEventListener("load", () => {
  const sizes = new ResizeObserver((changes) => changes.forEach((change) => markScrollable(change.target)));
  for (const box of document.querySelectorAll(`.bd-article :is(${scrollable})`)) sizes.observe(box);
});


// Some servers call a notebook a text, which browsers would show instead of saving it.
for (const link of document.querySelectorAll(".dropdown-download-buttons a[href$='.ipynb']")) link.download = "";

// Dark colours print washed out.
let themeOnScreen = null;
window.addEventListener("beforeprint", () => {
  themeOnScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
window.addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = themeOnScreen;
});
