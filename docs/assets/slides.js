/* Any page as slides: a section (h1 or h2 and what follows) at a time. `?slides` in the address begins. */
document.addEventListener("DOMContentLoaded", () => {
  const start = document.getElementById("td-slides-start");
  start?.addEventListener("click", begin);
  if (new URLSearchParams(location.search).has("slides")) begin();
});

function begin() {
  const inner = document.querySelector(".md-content__inner");
  const slides = [];
  for (const el of inner.children) {
    if (!slides.length || /^H[12]$/.test(el.tagName)) slides.push([]);
    slides.at(-1).push(el);
  }
  const count = document.createElement("div");
  count.className = "td-slide-count";
  count.setAttribute("role", "status");
  document.body.append(count);
  document.body.classList.add("td-slides");
  let at = 0;

  function show(number) {
    at = Math.min(Math.max(number, 0), slides.length - 1);
    slides.forEach((slide, i) => slide.forEach((el) => el.classList.toggle("td-slide-off", i !== at)));
    count.textContent = `${at + 1} of ${slides.length}`;
    scrollTo(0, 0);
  }

  function end() {
    document.removeEventListener("keydown", key);
    document.body.classList.remove("td-slides");
    count.remove();
    slides.flat().forEach((el) => el.classList.remove("td-slide-off"));
  }

  function key(event) {
    if (event.defaultPrevented || event.target.closest?.("input, textarea, select, .teachdist-player")) return;
    const turn = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (turn) show(at + turn);
    else if (event.key === "Escape") return end();
    else return;
    event.preventDefault();
  }

  document.addEventListener("keydown", key);
  show(0);
}
