"use strict";

// A table that names columns in data-filter gets a menu for each; without this script it is a plain table.
for (const table of document.querySelectorAll("table[data-filter]")) {
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const form = document.createElement("form");
  form.className = "table-filter";
  form.setAttribute("aria-label", "Choose rows of the table");
  const menus = table.dataset.filter.split(" ").map(Number).map((column) => {
    const label = document.createElement("label");
    const menu = document.createElement("select");
    menu.dataset.column = column;
    const values = [...new Set(rows.map((row) => row.cells[column].textContent.trim()))];
    menu.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    label.append(`${heads[column].textContent.trim()} `, menu);
    form.append(label);
    return menu;
  });
  const count = document.createElement("output");
  form.append(count);
  const apply = () => {
    for (const row of rows) {
      row.hidden = menus.some((menu) => menu.value && row.cells[menu.dataset.column].textContent.trim() !== menu.value);
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  // Above what scrolls, so that the menus stay in sight.
  (table.closest(".output, .pst-scrollable-table-container") ?? table).before(form);
  apply();
}
