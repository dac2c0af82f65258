/* What every page does: each .td-player holds its scenes, and a still picture until this runs. */
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // the theme leaves its dialog without a name
  for (const el of document.querySelectorAll(".td-player")) teachdistPlay(el, JSON.parse(el.dataset.scenes), el.dataset.autoplay === "yes");
});

/* A table that is wider than the page scrolls: then the keyboard must reach it, too. */
function teachdistScrollers() {
  for (const el of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (el.scrollWidth > el.clientWidth) el.tabIndex = 0;
    else el.removeAttribute("tabindex");
  }
}
for (const moment of ["load", "resize"]) addEventListener(moment, teachdistScrollers);

/* The player's model without a kernel: it holds values and listens to nobody. */
function teachdistPlay(el, scenes, autoplay = false) {
  const values = { scenes, autoplay, round: 0 };
  el.replaceChildren();
  teachdistPlayer.render({
    el,
    model: { get: (name) => values[name], set: (name, value) => (values[name] = value), on() {}, off() {}, save_changes() {} },
  });
}
