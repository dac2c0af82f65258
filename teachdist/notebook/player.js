/* The player: steps through the rounds of a collective, in JupyterLab and on pages alike.

The idea: what is on the screen is a function of one number, `at`. at = 2 is the state after two
rounds; at = 2.4 is the third round with its messages 40% of the way. Playing, stepping, scrubbing
and jumping all do nothing but set that number.

A script for any page: it takes each `.td-player` that waits, reads the scenes in `data-scenes` (see
pictures/scene.py) and puts a player in the place of the still pictures there. It needs no kernel, no
library, no build step and no request to anywhere, so it works wherever scripts run: live and reopened
notebooks, exported ones, the site. Where they don't, the still pictures stay. Several copies in one page
do no harm. A player tells the page where it is by an event, "teachdist-at".

Nothing is told by colour alone: a contribution also has its place in the bar and, where there is
room, its rank's number; "adds" is a plus sign; "complete" is a tick. */

const ROUND_SECONDS = 1.8;
const PAUSE_AT_END = 2.5;
const FONT = 14;
const MANY_MOVES = 24; // above it a message is a dot
const MANY_RANKS = 16; // above it a bar shows how many have contributed, not who
// Okabe and Ito's: told apart with every common kind of colour blindness. As in pictures/svg.py.
const COLOURS = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"];
const ON_COLOUR = ["#000", "#000", "#000", "#000", "#fff", "#000", "#000", "#000"];
const LAYOUTS = [["ring", "Ring"], ["line", "Line"], ["grid", "Grid"]];
const SPEEDS = [["0.5", "½"], ["1", "1"], ["2", "2"], ["4", "4"]];

const ICONS = {
  first: "M4 4h2v12H4zM16 4v12L7 10z",
  back: "M14 4v12l-9-6z",
  play: "M5 3l12 7-12 7z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z",
  forth: "M6 4v12l9-6z",
  full: "M3 3h6v2H5v4H3zM11 3h6v6h-2V5h-4zM3 11h2v4h4v2H3zM15 11h2v6h-6v-2h4z",
};

const STYLE = `
:host { display: block; margin: 0.8em 0; }
.player { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --ground: #ffffff; --card: #f6f8fa; --focus: #0969da; --bad: #b3261e;
  color: var(--ink); background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px;
  font: 14px/1.4 system-ui, sans-serif; box-sizing: border-box; }
.player.dark { --ink: #e6edf3; --soft: #a3adb8; --line: #3d444d; --ground: #14181d; --card: #1f252c; --focus: #79b8ff; --bad: #ff8f87; }
.player:fullscreen { display: flex; flex-direction: column; font-size: 22px; overflow: auto; border: 0; border-radius: 0; }
.player:fullscreen .stage { flex: 1; min-height: 0; max-height: none; }
.player:focus { outline: none; }
.head { display: flex; justify-content: space-between; gap: 1em; flex-wrap: wrap; font-weight: 600; }
.where { font-variant-numeric: tabular-nums; color: var(--soft); }
.stage { display: block; width: 100%; max-height: min(62vh, 480px); touch-action: manipulation; }
.caption { margin: 4px 0; min-height: 2.8em; overflow-wrap: anywhere; }
.values { margin: 4px 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 10px; font-variant-numeric: tabular-nums; }
.values dt { color: var(--soft); }
.values dd { margin: 0; overflow-wrap: anywhere; }
.fault { margin: 4px 0; color: var(--bad); font-weight: 600; overflow-wrap: anywhere; }
.bar { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.bar button, .bar select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  min-width: 34px; height: 34px; padding: 0 6px; cursor: pointer; }
.bar button svg { width: 1.15em; height: 1.15em; fill: currentColor; vertical-align: middle; }
.bar button:hover, .bar select:hover { border-color: var(--soft); }
.bar :focus-visible, summary:focus-visible, li button:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; }
.bar input { flex: 1 1 140px; min-width: 80px; height: 34px; margin: 0; accent-color: var(--focus); cursor: pointer; }
.bar label { display: inline-flex; align-items: center; gap: 4px; color: var(--soft); }
.bar select { color: var(--ink); max-width: 16em; }
details { margin-top: 6px; }
summary { cursor: pointer; color: var(--soft); }
ol { margin: 4px 0 0; padding-left: 2.2em; max-height: 16em; overflow: auto; }
li button { font: inherit; color: inherit; background: none; border: 0; text-align: left; padding: 2px 4px; cursor: pointer; overflow-wrap: anywhere; }
li[aria-current] button { font-weight: 700; }
text { font: ${FONT}px system-ui, sans-serif; fill: var(--ink); }
text.small { font-size: 10px; fill: var(--soft); }
text.mark { font-size: 12px; font-weight: 700; }
text.title { font-weight: 600; }
.card { fill: var(--card); stroke: var(--line); }
.rank.followed .card { stroke: var(--focus); stroke-width: 3; }
.rank { cursor: pointer; }
.rank.wrong .card { stroke: var(--bad); stroke-width: 3; }
.empty { fill: none; stroke: var(--line); stroke-dasharray: 3 2; }
.level { fill: var(--soft); }
.new { fill: none; stroke: var(--ink); stroke-width: 2; }
.host { fill: none; stroke: var(--soft); stroke-dasharray: 6 4; }
.arrow { fill: none; stroke: var(--soft); stroke-width: 2; }
.arrow.lost, .packet.lost rect { stroke: var(--bad); stroke-dasharray: 5 4; }
.over { opacity: 0.45; }
.packet .body { fill: var(--ground); stroke: var(--ink); }
.faint { opacity: 0.2; }
`;

/* Plays `scenes`, in the place of what `el` holds. */
function play(el, scenes, autoplay = false) {
  let player = null;
  const draw = (which) => {
    player?.destroy();
    const others = { titles: scenes.map(({ title }) => title), which, choose: draw };
    player = new Player(el, scenes[which], { play: autoplay, others });
  };
  el.replaceChildren();
  draw(0);
}

function playAll() {
  for (const el of document.querySelectorAll(".td-player[data-scenes]")) {
    const scenes = JSON.parse(el.dataset.scenes);
    delete el.dataset.scenes;
    play(el, scenes, el.dataset.autoplay === "yes");
  }
}

class Player {
  constructor(el, scene, { play, others }) {
    this.scene = scene;
    this.others = others;
    this.states = replay(scene);
    this.layout = scene.layout;
    this.follow = null;
    this.speed = 1;
    this.at = scene.fault ? scene.rounds.length : 0; // what went wrong is what one wants to see first
    this.playing = false;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.build(el);
    this.show();
    if (play && !this.calm.matches) this.playWhenSeen();
  }

  // -- the page's part ---------------------------------------------------------------------------

  build(el) {
    this.host = document.createElement("div");
    this.host.className = "teachdist-player";
    el.append(this.host);
    const shadow = this.host.attachShadow({ mode: "open" });
    const { scene } = this;
    shadow.innerHTML = `<style>${STYLE}</style>
      <div class="player" role="group" tabindex="-1" aria-label="Player: ${escape(scene.title)}">
        <div class="head"><span>${escape(scene.title)}</span><span class="where"></span></div>
        <svg class="stage" role="img" preserveAspectRatio="xMidYMid meet">
          <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0L8 4L0 8z" style="fill: var(--soft)"/></marker></defs>
          <g class="ground"></g><g class="arrows"></g><g class="cards"></g><g class="packets"></g></svg>
        <p class="caption" aria-live="polite"></p>
        ${scene.rounds.some(({ values }) => values) ? `<dl class="values" aria-label="What the chunks hold"></dl>` : ""}
        ${scene.fault ? `<p class="fault">${escape(scene.fault.sentence)}</p>` : ""}
        <div class="bar">
          ${button("first", "Back to the start")}${button("back", "One round back")}${button("play", "Play")}${button("forth", "One round on")}
          <input type="range" min="0" max="${scene.rounds.length}" step="0.05" value="0" aria-label="Position among the rounds">
          ${this.others.titles.length > 1 ? `<label>Call ${select("call", this.others.titles.map((title, i) => [i, `${i}: ${escape(title)}`]), this.others.which)}</label>` : ""}
          <label>Speed ${select("speed", SPEEDS, "1")}</label>
          <label>Layout ${select("layout", LAYOUTS, this.layout)}</label>
          <label>Follow ${select("follow", [["", "all ranks"], ...scene.start.map((_, rank) => [rank, `rank ${rank}`])], "")}</label>
          ${document.fullscreenEnabled ? button("full", "Fill the screen") : ""}
        </div>
        <details><summary>Every round in words</summary><ol start="0"></ol></details>
      </div>`;
    this.find = (what) => shadow.querySelector(what);
    this.root = this.find(".player");
    this.listen(shadow);
    this.watchTheme();
  }

  listen(shadow) {
    const does = {
      first: () => this.go(0),
      back: () => this.back(),
      play: () => this.toggle(),
      forth: () => this.forth(),
      full: () => (document.fullscreenElement ? document.exitFullscreen() : this.root.requestFullscreen()),
    };
    for (const [name, act] of Object.entries(does)) this.find(`[data-does=${name}]`)?.addEventListener("click", act);
    const slider = this.find("input");
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    slider.addEventListener("change", () => this.go(Math.round(slider.value)));
    this.find("[name=call]")?.addEventListener("change", (e) => this.others.choose(Number(e.target.value)));
    this.find("[name=speed]").addEventListener("change", (e) => (this.speed = Number(e.target.value)));
    this.find("[name=layout]").addEventListener("change", (e) => { this.layout = e.target.value; this.show(); });
    this.find("[name=follow]").addEventListener("change", (e) => this.followRank(e.target.value));
    this.find(".cards").addEventListener("click", (e) => {
      const rank = e.target.closest("[data-rank]")?.dataset.rank;
      if (rank !== undefined) this.followRank(this.follow === Number(rank) ? "" : rank);
    });
    this.find("ol").addEventListener("click", (e) => {
      const item = e.target.closest("li");
      if (item) this.go(Number(item.dataset.round) + 1);
    });
    this.root.addEventListener("keydown", (e) => this.key(e));
    // JupyterLab and the site have single keys that edit cells and turn pages. Ctrl+S is theirs still.
    for (const kind of ["keydown", "keypress", "keyup"]) this.host.addEventListener(kind, (e) => modified(e) || e.stopPropagation());
  }

  key(event) {
    const on = event.target.tagName;
    if (modified(event) || on === "SELECT") return;
    const press = { ArrowRight: () => this.forth(), ArrowLeft: () => this.back(), Home: () => this.go(0), End: () => this.go(this.scene.rounds.length) };
    if (on !== "BUTTON" && on !== "SUMMARY") press[" "] = () => this.toggle();
    press.k = () => this.toggle();
    if (!press[event.key]) return;
    press[event.key]();
    event.preventDefault();
  }

  watchTheme() {
    const look = () => this.root.classList.toggle("dark", onDarkGround(this.host));
    this.themes = new MutationObserver(look);
    for (const el of [document.documentElement, document.body]) this.themes.observe(el, { attributes: true });
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", look);
    this.lookAgain = look;
    look();
    requestAnimationFrame(look); // by then the element stands in the page
  }

  destroy() {
    this.pause();
    this.seen?.disconnect();
    this.themes.disconnect();
    this.dark.removeEventListener("change", this.lookAgain);
    this.host.remove();
  }

  // -- moving -------------------------------------------------------------------------------------

  go(at) {
    this.pause();
    this.show(at);
  }

  forth() {
    this.go(Math.floor(this.at + 1e-9) + 1);
  }

  back() {
    this.go(Math.ceil(this.at - 1e-9) - 1);
  }

  toggle() {
    if (this.playing) return this.go(this.at);
    if (this.at >= this.scene.rounds.length) this.show(0);
    this.play();
  }

  play(again = false) {
    this.playing = true;
    this.mark();
    const rounds = this.scene.rounds.length;
    let last = performance.now();
    let rested = 0;
    const tick = (now) => {
      if (!this.playing) return;
      const passed = ((now - last) / 1000) * this.speed;
      last = now;
      if (this.at < rounds) this.move(passed / ROUND_SECONDS);
      else if (!again) return this.go(rounds);
      else if ((rested += passed) > PAUSE_AT_END) rested = this.show(0) ?? 0;
      this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  /* With reduced motion a round is shown when it is over, without the way there. */
  move(by) {
    if (!this.calm.matches) return this.show(this.at + by);
    this.waited = (this.waited ?? 0) + by;
    if (this.waited < 1) return;
    this.waited = 0;
    this.show(Math.floor(this.at) + 1);
  }

  playWhenSeen() {
    this.seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      this.seen.disconnect();
      if (this.at === 0) this.play(true);
    });
    this.seen.observe(this.host);
  }

  pause() {
    this.playing = false;
    cancelAnimationFrame(this.frame);
  }

  followRank(rank) {
    this.follow = rank === "" ? null : Number(rank);
    this.find("[name=follow]").value = String(rank);
    this.show();
  }

  // -- drawing -----------------------------------------------------------------------------------

  show(at = this.at) {
    const { scene } = this;
    this.at = Math.min(Math.max(at, 0), scene.rounds.length);
    const whole = Math.floor(this.at + 1e-9);
    const part = this.at - whole;
    const places = place(scene, this.layout);
    const stage = this.find(".stage");
    stage.setAttribute("viewBox", places.box.join(" "));
    const round = part > 1e-9 ? whole : whole - 1; // the round that is seen, -1 before the first
    const over = part <= 1e-9;
    const arrived = part > 0.9 ? whole + 1 : whole;
    const moves = scene.rounds[round]?.moves ?? [];
    this.find(".ground").innerHTML = hosts(scene, places);
    this.find(".arrows").innerHTML = moves.map((move) => arrow(move, places, over, this.faint(move))).join("");
    const changed = changes(moves, round >= 0 && arrived > round);
    const wrong = scene.fault && round === scene.fault.round ? scene.fault.rank : null;
    this.find(".cards").innerHTML = places.cards
      .map((card, rank) => cardOf(scene, rank, card, this.states[arrived][rank], changed, { followed: this.follow === rank, wrong: wrong === rank }))
      .join("");
    this.find(".packets").innerHTML =
      over || part > 0.93 ? "" : moves.map((move) => packet(scene, move, places, this.states[whole], part, moves.length, this.faint(move))).join("");
    this.say(round, over);
    this.host.dispatchEvent(new CustomEvent("teachdist-at", { bubbles: true, detail: { round, part, over } }));
  }

  faint(move) {
    return this.follow !== null && move.from !== this.follow && move.to !== this.follow;
  }

  say(round, over) {
    const { scene } = this;
    const count = scene.rounds.length;
    const text = round < 0 ? `Before the first round. ${scene.meaning ?? ""}` : inWords(scene, round, this.follow);
    const where = round < 0 ? "start" : `round ${round} of 0–${count - 1}${over ? ", done" : ""}`;
    const caption = this.find(".caption");
    caption.setAttribute("aria-live", this.playing ? "off" : "polite");
    if (caption.textContent !== text) caption.textContent = text;
    this.find(".where").textContent = where;
    this.find(".stage").setAttribute("aria-label", `${where}. ${text}`);
    const slider = this.find("input");
    slider.value = this.at;
    slider.setAttribute("aria-valuetext", where);
    this.root.dataset.at = this.at.toFixed(2);
    if (this.listed !== this.follow) this.list();
    for (const item of this.find("ol").children) item.toggleAttribute("aria-current", Number(item.dataset.round) === round);
    this.tell(over ? round : round - 1);
    this.mark();
  }

  /* The numbers that chunks held after a round, if the call was recorded with them. */
  tell(round) {
    const place = this.find(".values");
    if (!place) return;
    const held = Object.entries(this.scene.rounds[round]?.values ?? {});
    const seen = held.filter(([rank]) => this.follow === null || Number(rank) === this.follow);
    place.innerHTML = seen.map(([rank, text]) => `<dt>rank ${rank}</dt><dd>${escape(text)}</dd>`).join("");
  }

  list() {
    this.listed = this.follow;
    this.find("ol").innerHTML = this.scene.rounds
      .map((_, round) => `<li data-round="${round}"><button>${escape(inWords(this.scene, round, this.follow, false))}</button></li>`)
      .join("");
  }

  mark() {
    const control = this.find("[data-does=play]");
    const shown = this.playing ? "pause" : "play";
    if (control.dataset.shown === shown) return;
    control.dataset.shown = shown;
    control.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    control.title = `${this.playing ? "Pause" : "Play"} (k)`;
    control.innerHTML = icon(shown);
  }
}

// -- what is where and who holds what --------------------------------------------------------------

/* states[k][rank]: Map chunk -> sorted contributors, after k rounds. A send takes what was there before the round. */
function replay(scene) {
  const states = [scene.start.map((held) => new Map(Object.entries(held).map(([chunk, who]) => [Number(chunk), who])))];
  for (const { moves } of scene.rounds) {
    const before = states.at(-1);
    const after = before.map((held) => new Map(held));
    for (const { from, to, chunks, adds, lost } of moves) {
      if (lost) continue;
      for (const chunk of chunks) {
        const who = before[from].get(chunk) ?? [];
        const there = adds ? (after[to].get(chunk) ?? []) : [];
        after[to].set(chunk, [...new Set([...there, ...who])].sort((a, b) => a - b));
      }
    }
    states.push(after);
  }
  return states;
}

function changes(moves, visible) {
  const changed = new Set();
  if (visible) for (const { to, chunks, lost } of moves) if (!lost) for (const chunk of chunks) changed.add(`${to}:${chunk}`);
  return changed;
}

/* How a card is divided: a bar per chunk, or a grid of cells when there are many. A bar has a slot per contributor. */
function shapeOf(scene) {
  const slots = scene.reduces ? scene.size : 1;
  if (scene.chunks <= 16 && !scene.labels) {
    const high = scene.chunks <= 8 ? 18 : 12;
    const slot = slots === 1 ? 44 : Math.min(Math.max(128 / slots, 5), 20);
    const label = 14 + 8 * Math.max(...chunkNames(scene).map((name) => name.length));
    return { slots, slot, high, columns: 1, label, cell: slots * slot + label + 16, width: Math.max(slots * slot + label + 30, 96), height: 30 + scene.chunks * high + 8 };
  }
  const columns = Math.ceil(Math.sqrt(scene.chunks));
  const slot = slots === 1 ? Math.max(36 - columns, 10) : Math.max(20 / slots, 1.5);
  const cell = slots * slot + 3;
  return { slots, slot, high: 15, columns, label: 0, cell, width: Math.max(columns * cell + 16, 96), height: 30 + Math.ceil(scene.chunks / columns) * 15 + 8 };
}

function place(scene, layout) {
  const shape = shapeOf(scene);
  const { width, height } = shape;
  const n = scene.size;
  let centres;
  let air = 0;
  if (layout === "line") {
    centres = Array.from({ length: n }, (_, i) => [i * (width + 26), 0]);
    const span = Math.max(1, ...scene.rounds.flatMap(({ moves }) => moves.map(({ from, to }) => Math.abs(from - to))));
    air = 26 + 12 * span;
  } else if (layout === "grid") {
    const columns = scene.columns ?? Math.ceil(Math.sqrt(n));
    centres = Array.from({ length: n }, (_, i) => [(i % columns) * (width + 70), Math.floor(i / columns) * (height + 64)]);
  } else {
    centres = onEllipse(n, width + 46, height + 40);
  }
  const xs = centres.map(([x]) => x);
  const ys = centres.map(([, y]) => y);
  const margin = scene.hosts ? 26 : 12;
  const left = Math.min(...xs) - width / 2 - margin;
  const top = Math.min(...ys) - height / 2 - margin - air;
  const wide = Math.max(...xs) + width / 2 + margin - left;
  const spare = Math.max(0, 520 - wide) / 2; // few ranks don't grow into giants
  const box = [left - spare, top, wide + 2 * spare, Math.max(...ys) + height / 2 + margin + air - top];
  const cards = centres.map(([x, y]) => ({ x, y, left: x - width / 2, top: y - height / 2, width, height }));
  return { layout, shape, box, cards };
}

/* n points clockwise from the top, just far enough apart for boxes of this size. */
function onEllipse(n, width, height) {
  if (n === 1) return [[0, 0]];
  for (let radius = 40; ; radius += 8) {
    const points = Array.from({ length: n }, (_, i) => {
      const angle = (2 * Math.PI * i) / n - Math.PI / 2;
      return [radius * Math.cos(angle) * (n === 2 ? 1 : 1.35), radius * Math.sin(angle) * 0.8];
    });
    const apart = ([ax, ay], [bx, by]) => Math.abs(ax - bx) >= width || Math.abs(ay - by) >= height;
    if (points.every((a, i) => points.every((b, j) => i >= j || apart(a, b)))) return points;
  }
}

/* The way of a message: a curve that bends to the left of its direction, so that two opposite ones don't meet. */
function way({ from, to }, { layout, cards }) {
  const a = cards[from];
  const b = cards[to];
  if (layout === "line") {
    const side = to > from ? -1 : 1;
    const start = [a.x + 8 * Math.sign(to - from), a.y + (side * a.height) / 2];
    const end = [b.x - 8 * Math.sign(to - from), b.y + (side * b.height) / 2];
    return [start, [(start[0] + end[0]) / 2, start[1] + side * (30 + 22 * Math.abs(to - from))], end];
  }
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const middle = [a.x + dx / 2 + dy * 0.14, a.y + dy / 2 - dx * 0.14];
  return [edge(a, middle), middle, edge(b, middle)];
}

/* Where the line from a card's centre to a point leaves the card. */
function edge(card, [x, y]) {
  const [dx, dy] = [x - card.x, y - card.y];
  const scale = Math.min(1, (card.width / 2 + 3) / Math.abs(dx || 1e-9), (card.height / 2 + 3) / Math.abs(dy || 1e-9));
  return [card.x + dx * scale, card.y + dy * scale];
}

function along([a, b, c], t) {
  const mix = (i) => (1 - t) * (1 - t) * a[i] + 2 * t * (1 - t) * b[i] + t * t * c[i];
  return [mix(0), mix(1)];
}

// -- pieces of the picture ------------------------------------------------------------------------

function hosts(scene, { cards }) {
  if (!scene.hosts) return "";
  return [...new Set(scene.hosts)]
    .map((host) => {
      const own = cards.filter((_, rank) => scene.hosts[rank] === host);
      const [left, top] = [Math.min(...own.map((c) => c.left)) - 12, Math.min(...own.map((c) => c.top)) - 18];
      const right = Math.max(...own.map((c) => c.left + c.width)) + 12;
      const bottom = Math.max(...own.map((c) => c.top + c.height)) + 12;
      return `<rect class="host" x="${left}" y="${top}" width="${right - left}" height="${bottom - top}" rx="10"/>
        <text class="small" x="${left + 8}" y="${top + 12}">host ${host}</text>`;
    })
    .join("");
}

function cardOf(scene, rank, card, held, changed, { followed, wrong }) {
  const { left, top, width, height } = card;
  const shape = shapeOf(scene);
  const names = chunkNames(scene);
  const cells = [];
  for (let chunk = 0; chunk < scene.chunks; chunk++) {
    const x = left + 8 + (chunk % shape.columns) * shape.cell + shape.label;
    const y = top + 28 + Math.floor(chunk / shape.columns) * shape.high;
    if (shape.label && shape.high > 12) cells.push(`<text class="small" x="${left + 8}" y="${y + 11}">${names[chunk]}</text>`);
    cells.push(bar(held.get(chunk), x, y, shape.slot, shape.high - 3, shape.slots, changed.has(`${rank}:${chunk}`), shape.label ? null : names[chunk]));
    if (shape.label && complete(scene, rank, chunk, held)) cells.push(`<text class="mark" x="${x + shape.slot * shape.slots + 4}" y="${y + 11}">✓</text>`);
  }
  return `<g class="rank${followed ? " followed" : ""}${wrong ? " wrong" : ""}" data-rank="${rank}">
    <rect class="card" x="${left}" y="${top}" width="${width}" height="${height}" rx="6"/>
    <rect x="${left + 8}" y="${top + 8}" width="12" height="12" rx="2" fill="${COLOURS[rank % COLOURS.length]}"/>
    <text class="title" x="${left + 26}" y="${top + 19}">rank ${rank}</text>${cells.join("")}</g>`;
}

/* A chunk: a slot for everybody who may have contributed, filled for those who have and with their number, or `name`. */
function bar(who, x, y, slot, high, slots, isNew, name = null) {
  const width = slot * slots;
  const outline = isNew ? `<rect class="new" x="${x - 1}" y="${y - 1}" width="${width + 2}" height="${high + 2}"/>` : "";
  if (!who?.length) return `<rect class="empty" x="${x}" y="${y}" width="${width}" height="${high}"/>${outline}`;
  if (slots > MANY_RANKS) {
    const level = (width * who.length) / slots;
    return `<rect class="empty" x="${x}" y="${y}" width="${width}" height="${high}"/><rect class="level" x="${x}" y="${y}" width="${level}" height="${high}"/>${outline}`;
  }
  const filled = who.map((rank) => {
    const at = slots === 1 ? x : x + rank * slot;
    const number =
      slot >= (name ? 28 : 14) && high >= 11
        ? `<text x="${at + slot / 2}" y="${y + high / 2 + 4}" text-anchor="middle" style="font-size:${slots === 1 && name ? 10 : 11}px;fill:${ON_COLOUR[rank % COLOURS.length]}">${name ?? rank}</text>`
        : "";
    return `<rect x="${at}" y="${y}" width="${slot}" height="${high}" fill="${COLOURS[rank % COLOURS.length]}"/>${number}`;
  });
  return `<rect class="empty" x="${x}" y="${y}" width="${width}" height="${high}"/>${filled.join("")}${outline}`;
}

function complete(scene, rank, chunk, held) {
  const wanted = scene.end?.[rank]?.[chunk];
  const there = held.get(chunk);
  return wanted && there && wanted.every((who) => there.includes(who));
}

function arrow(move, places, over, faint) {
  const [a, b, c] = way(move, places);
  const classes = `arrow${over ? " over" : ""}${faint ? " faint" : ""}${move.lost ? " lost" : ""}`;
  return `<path class="${classes}" d="M${a}Q${b} ${c}" marker-end="url(#tip)"/>`;
}

function packet(scene, move, places, before, part, count, faint) {
  const flight = Math.min(Math.max((part - 0.08) / 0.8, 0), 1);
  const eased = flight < 0.5 ? 2 * flight * flight : 1 - 2 * (1 - flight) * (1 - flight);
  const [x, y] = along(way(move, places), move.lost ? eased * 0.6 : eased);
  const classes = `packet${faint ? " faint" : ""}${move.lost ? " lost" : ""}`;
  if (count > MANY_MOVES) return `<circle class="${classes}" cx="${x}" cy="${y}" r="6" fill="${COLOURS[move.from % COLOURS.length]}" stroke="#000"/>`;
  const { slots } = shapeOf(scene);
  const slot = slots === 1 ? 22 : Math.max(Math.min(64 / slots, 12), 3);
  const names = chunkNames(scene);
  const shown = move.chunks.slice(0, move.chunks.length > 4 ? 3 : 4);
  const lines = shown.length + (shown.length < move.chunks.length ? 1 : 0);
  const label = 14 + 7 * Math.max(...shown.map((chunk) => names[chunk].length));
  const [width, height] = [label + slots * slot + 8, 6 + lines * 15];
  const [left, top] = [x - width / 2, y - height / 2];
  const rows = shown.map((chunk, i) => {
    const line = top + 3 + i * 15;
    return `<text class="mark" x="${left + 5}" y="${line + 12}">${move.adds ? "+" : ""}${names[chunk]}</text>
      ${bar(before[move.from].get(chunk), left + label + 3, line + 2, slot, 11, slots, false)}`;
  });
  if (lines > shown.length) rows.push(`<text class="small" x="${left + 5}" y="${top + lines * 15 - 1}">and ${move.chunks.length - shown.length} more</text>`);
  return `<g class="${classes}"><rect class="body" x="${left}" y="${top}" width="${width}" height="${height}" rx="4"/>${rows.join("")}</g>`;
}

// -- words ------------------------------------------------------------------------------------------

function inWords(scene, round, follow, withNumber = true) {
  const { moves, note } = scene.rounds[round];
  const seen = follow === null ? moves : moves.filter(({ from, to }) => from === follow || to === follow);
  const said = seen.slice(0, 12).map((move) => `${move.from} → ${move.to}: ${chunksOf(scene, move)}${move.adds ? ", added" : ""}${move.bytes === undefined ? "" : ` (${size(move.bytes)})`}${move.lost ? " (nobody takes it)" : ""}`);
  if (seen.length > 12) said.push(`and ${seen.length - 12} more messages`);
  const text = said.join("; ") || (follow === null ? "nobody sends" : `rank ${follow} rests`);
  return `${withNumber ? `Round ${round}. ` : ""}${text}${note ? ` (${note})` : ""}`;
}

function chunksOf(scene, { chunks }) {
  const names = chunks.map((chunk) => chunkNames(scene)[chunk]);
  const some = names.length > 6 ? [...names.slice(0, 5), `${names.length - 5} more`] : names;
  return `${names.length === 1 ? "chunk" : "chunks"} ${some.join(", ")}`;
}

function size(bytes) {
  const unit = ["B", "KiB", "MiB", "GiB"].find((_, i) => bytes < 1024 ** (i + 1)) ?? "TiB";
  return `${Number((bytes / 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(unit)).toPrecision(4))} ${unit}`;
}

function chunkNames(scene) {
  return scene.labels ?? Array.from({ length: scene.chunks }, (_, chunk) => String(chunk));
}

function button(does, says) {
  const key = { back: " (left arrow)", forth: " (right arrow)", first: " (Home)" }[does] ?? "";
  return `<button type="button" data-does="${does}" aria-label="${says}" title="${says}${key}">${icon(does)}</button>`;
}

function icon(name) {
  return `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;
}

function select(name, options, chosen) {
  const all = options.map(([value, text]) => `<option value="${value}"${value === chosen ? " selected" : ""}>${text}</option>`);
  return `<select name="${name}">${all.join("")}</select>`;
}

function escape(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

function modified(event) {
  return event.ctrlKey || event.metaKey || event.altKey;
}

/* Whether the nearest painted ground is dark: right for JupyterLab, for the site and wherever else. */
function onDarkGround(el) {
  for (let at = el; at; at = at.parentElement) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (parts.length >= 3 && (parts[3] ?? 1) > 0.5) return 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// -- the start: here, since the class must be known by now

globalThis.teachdistPlay = play;
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", playAll);
else playAll();
