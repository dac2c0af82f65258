/* What every page does: each .td-player holds its scenes, and a still picture until this runs. */
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // the theme leaves its dialog without a name
  for (const el of document.querySelectorAll(".td-player")) teachdistPlay(el, JSON.parse(el.dataset.scenes), el.dataset.autoplay === "yes");
});

/* The player's model without a kernel: it holds values and listens to nobody. */
function teachdistPlay(el, scenes, autoplay = false) {
  const values = { scenes, autoplay, round: 0 };
  el.replaceChildren();
  teachdistPlayer.render({
    el,
    model: { get: (name) => values[name], set: (name, value) => (values[name] = value), on() {}, off() {}, save_changes() {} },
  });
}
