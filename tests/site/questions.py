"""What a page is asked in the browser: functions in JavaScript, each answering with plain data."""

FACTS = r"""
async () => {
  await document.fonts.ready;
  const formulas = [...document.querySelectorAll(".bd-article .math")];
  if (formulas.length) await MathJax.startup.promise;
  const prose = document.querySelector(".bd-article")?.cloneNode(true);
  // Cards quote the corpus, and its dollars are dollars.
  prose?.querySelectorAll("pre, code, script, style, .math, .concept-cards").forEach((node) => node.remove());
  const outputs = document.querySelectorAll(".bd-article .cell_output");
  const last = outputs[outputs.length - 1];
  const rest = document.createRange();
  if (last) {
    rest.setStartAfter(last);
    rest.setEndAfter(document.querySelector(".bd-article"));
  }
  return {
    formulas: formulas.length,
    unrendered: formulas.filter((node) => !node.querySelector("mjx-container")).map((node) => node.textContent),
    errors: [...document.querySelectorAll("mjx-merror")].map((node) => node.textContent),
    raw: (prose?.textContent ?? "").match(/\$[^$\n]+\$|\\\(|\\\[|\{cite|\{numref/g) ?? [],
    images: [...document.querySelectorAll("main img")].map((image) => ({
      alt: image.alt, loaded: image.naturalWidth > 0, source: image.getAttribute("src"),
    })),
    stderr: [...document.querySelectorAll(".stderr")].map((node) => node.textContent),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
    ending: last?.textContent.trim() ?? "",
    after: last ? rest.toString().trim() : "",
  };
}
"""

UNFOLD = """
() => {
  document.querySelectorAll("details").forEach((node) => { node.open = true; });
  document.querySelectorAll(".toggle-hidden").forEach((node) => node.classList.remove("toggle-hidden"));
}
"""

_NAME = """
  const name = (node) =>
    `<${node.tagName.toLowerCase()} class="${node.className}"> ${node.textContent.trim().slice(0, 60)}`;
"""

NARROW = (
    """
async () => {
  // What scrolls is found by an observer, which answers after the next frame.
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
"""
    + _NAME
    + """
  const flow = (node) => getComputedStyle(node).overflowX;
  const scrolls = (node) => ["auto", "scroll"].includes(flow(node));
  const box = (node, wanted) => {
    for (let up = node; up && !up.matches(".bd-article"); up = up.parentElement) if (wanted(up)) return up;
    return null;
  };
  const all = [...document.querySelectorAll(".bd-article *:not(mjx-assistive-mml, mjx-assistive-mml *)")];
  const wide = all.filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !box(node, scrolls));
  const scrollers = all.filter((node) => scrolls(node) && node.scrollWidth > node.clientWidth + 1 && node.clientWidth);
  const cut = all.filter((node) => {
    if (!node.matches("table, pre, img, svg, mjx-container")) return false;
    const holder = box(node.parentElement, (up) => flow(up) !== "visible");
    return holder && !scrolls(holder) && node.getBoundingClientRect().right > holder.getBoundingClientRect().right + 1;
  });
  return {
    page: document.documentElement.scrollWidth,
    wide: wide.map(name),
    cut: cut.map(name),
    unreachable: scrollers
      .filter((node) => node.tabIndex < 0 && !node.querySelector("a[href], button, input, select, [tabindex='0']"))
      .map(name),
  };
}
"""
)

PAPER = (
    """
() => {
"""
    + _NAME
    + """
  const shown = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getBoundingClientRect().width > 2;
  // On white, which shines through.
  const luminance = (colour) => {
    const full = colour.startsWith("color(") ? 1 : 255;
    const [red, green, blue, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    const [r, g, b] = [red, green, blue].map((part) => {
      const share = alpha * (part / full) + 1 - alpha;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const words = [...document.querySelectorAll(".bd-article :is(h1, h2, h3, p, li, td, th, dt, code, figcaption)")];
  const surfaces = document.querySelectorAll("html, body, main, .bd-article, .bd-article *");
  const large = document.querySelectorAll(
    ".bd-article :is(p, table, pre, img, svg, figure, div.math, mjx-container[display='true'], .admonition)"
  );
  const useless = "header, .bd-header, .bd-sidebar-primary, .bd-sidebar-secondary, footer, .prev-next-footer, button, "
    + "a.btn, input:not([type='checkbox']), select, .headerlink, .skip-link, .table-filter";
  return {
    useless: [...document.querySelectorAll(useless)].filter(shown).map(name),
    // 4.5:1 on white
    pale: words.filter((node) => shown(node) && luminance(getComputedStyle(node).color) > 0.183).map(name),
    dark: [...surfaces]
      .map((node) => [node, getComputedStyle(node).backgroundColor])
      .filter(([node, colour]) => shown(node) && luminance(colour) < 0.4)
      .map(([node]) => name(node)),
    // Paper does not scroll: what hangs over the edge is lost.
    lost: [...large]
      .filter((node) => shown(node) && (node.getBoundingClientRect().right > innerWidth + 1
        || (getComputedStyle(node).overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1)))
      .map(name),
    // What stays folded is at least named, and no solution stays folded.
    folded: [
      ...[...document.querySelectorAll(".bd-article details:not([open])")].filter(
        (node) => !shown(node.querySelector("summary")) || !node.querySelector("summary").textContent.trim()),
      ...document.querySelectorAll(".bd-article .toggle-hidden"),
    ].map(name),
  };
}
"""
)

MOTION = (
    """
() => {
"""
    + _NAME
    + """
  const seconds = (text) => Math.max(...text.split(", ").map(parseFloat));
  return [...document.querySelectorAll("*")]
    .filter((node) => {
      const style = getComputedStyle(node);
      const moves = [style.transitionDuration, style.animationDuration].some((text) => seconds(text) > 0.001);
      return moves || style.scrollBehavior === "smooth";
    })
    .map(name);
}
"""
)
