document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // the theme leaves its dialog without a name
});

/* A table that is wider than the page scrolls: then the keyboard must reach it, too. */
function teachdistScrollers() {
  for (const el of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (el.scrollWidth > el.clientWidth) el.tabIndex = 0;
    else el.removeAttribute("tabindex");
  }
}
for (const moment of ["load", "resize"]) addEventListener(moment, teachdistScrollers);
