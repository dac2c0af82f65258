/* The playground: an editor, three questions (is it right? what does it do? what does it cost?) and the answers. */
document.addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("td-playground");
  if (root) new Playground(root);
});

class Playground {
  constructor(root) {
    this.root = root;
    const missing = root.dataset.missing || (location.protocol === "file:" && "a browser runs no Python from files; see “In a class room without internet” on the page Teach");
    if (missing) {
      root.innerHTML = `<p class="td-verdict td-bad"></p>`;
      root.firstChild.textContent = `The playground can't start here: ${missing}.`;
      return;
    }
    root.innerHTML = `<div class="td-row"><button type="button" class="td-main" data-does="start">Start Python in this page</button>
      <span>about 13 MB, from this site only</span></div><p class="td-verdict" role="status" hidden></p>`;
    this.find("[data-does=start]").addEventListener("click", () => this.start());
  }

  find(what) {
    return this.root.querySelector(what);
  }

  /* A question to Python; answers come in the order in which they were asked. */
  ask(call, ...given) {
    this.waiting ??= new Map();
    return new Promise((resolve, reject) => {
      const id = (this.count = (this.count ?? 0) + 1);
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, call, given });
    });
  }

  employ() {
    this.worker = new Worker(new URL("assets/playground-worker.js", document.baseURI), { type: "module" });
    this.worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      error === undefined ? resolve(result) : reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting?.values() ?? []) reject(new Error(event.message || "Python could not be loaded"));
      this.waiting?.clear();
    };
  }

  async start() {
    this.find("[data-does=start]").disabled = true;
    this.say("Python is starting …");
    try {
      this.employ();
      [this.tasks, this.ops] = [await this.ask("tasks"), await this.ask("collectives")];
    } catch (error) {
      this.find("[data-does=start]").disabled = false;
      return this.say(`Python did not start: ${error.message}`, false);
    }
    this.build();
  }

  build() {
    const options = (pairs) => pairs.map(([value, text]) => `<option value="${value}">${text}</option>`).join("");
    this.root.innerHTML = `
      <div class="td-row">
        <label>Task <select name="task">${options(this.tasks.map(({ name, op }) => [name, name ? `${name.replaceAll("_", " ")} (${op})` : "free play"]))}</select></label>
        <label class="td-free">Collective <select name="op">${options(Object.keys(this.ops).map((op) => [op, op]))}</select></label>
        <label class="td-free">Chunks <input name="chunks" size="6" spellcheck="false"></label>
      </div>
      <p class="td-task"></p>
      <label for="td-code">Your generator. Tab indents; Escape, then Tab leaves the editor.</label>
      <textarea id="td-code" spellcheck="false" autocapitalize="off" autocomplete="off"></textarea>
      <div class="td-row">
        <button type="button" class="td-main" data-does="check">Prove it</button>
        <button type="button" data-does="step">Step through</button>
        <button type="button" data-does="price">Price it</button>
        <label>Ranks <input name="ranks" type="number" min="1" max="16" value="4"></label>
        <button type="button" data-does="hint">Hint</button>
        <button type="button" data-does="again">Begin again</button>
        <button type="button" data-does="stop" hidden>Stop</button>
      </div>
      <p class="td-verdict" role="status" hidden></p>
      <div class="td-picture"></div>`;
    for (const call of ["check", "step", "price"]) this.find(`[data-does=${call}]`).addEventListener("click", () => this.run(call));
    this.find("[data-does=hint]").addEventListener("click", () => this.say(this.task.hint));
    this.find("[data-does=again]").addEventListener("click", () => this.choose(this.task, true));
    this.find("[data-does=stop]").addEventListener("click", () => this.stop());
    this.find("[name=task]").addEventListener("change", (event) => this.choose(this.tasks.find(({ name }) => name === event.target.value)));
    this.code = this.find("textarea");
    this.code.addEventListener("keydown", (event) => this.key(event));
    this.code.addEventListener("input", () => keep(this.task.name, this.code.value));
    this.choose(this.tasks[0]);
  }

  choose(task, anew = false) {
    this.task = task;
    this.find(".td-task").textContent = task.task;
    this.code.value = (!anew && kept(task.name)) || task.starter;
    this.find("[name=op]").value = task.op;
    this.find("[name=chunks]").value = task.chunks;
    for (const el of this.root.querySelectorAll(".td-free")) el.hidden = Boolean(task.name);
    this.find("[data-does=hint]").hidden = !task.hint;
    this.find(".td-picture").replaceChildren();
    this.find(".td-verdict").hidden = true;
  }

  async run(call) {
    const given = [this.code.value, this.task.name, this.find("[name=op]").value, this.find("[name=chunks]").value];
    if (call !== "check") given.push(Number(this.find("[name=ranks]").value));
    this.busy(true);
    this.say("…");
    try {
      this.show(await this.ask(call, ...given));
    } catch (error) {
      this.say(error.message, false);
    }
    this.busy(false);
  }

  show({ good, text, scene, svg }) {
    this.say(text, good);
    const picture = this.find(".td-picture");
    picture.replaceChildren();
    if (scene) teachdistPlay(picture, [scene]);
    else if (svg) picture.innerHTML = svg;
  }

  busy(yes) {
    this.find("[data-does=stop]").hidden = !yes;
    for (const call of ["check", "step", "price"]) this.find(`[data-does=${call}]`).disabled = yes;
  }

  stop() {
    this.worker.terminate();
    for (const { reject } of this.waiting.values()) reject(new Error("Stopped. Python starts anew with the next question."));
    this.waiting.clear();
    this.employ();
  }

  say(text, good = null) {
    const verdict = this.find(".td-verdict");
    verdict.hidden = !text;
    verdict.textContent = text;
    verdict.classList.toggle("td-good", good === true);
    verdict.classList.toggle("td-bad", good === false);
  }

  key(event) {
    if (event.key === "Escape") this.leaving = true;
    else if (event.key === "Tab" && !this.leaving && !event.shiftKey) this.type(event, "    ");
    else if (event.key === "Enter") {
      const line = this.code.value.slice(0, this.code.selectionStart).split("\n").at(-1);
      this.type(event, `\n${line.match(/^ */)[0]}${/:\s*$/.test(line) ? "    " : ""}`);
    }
    if (event.key !== "Escape") this.leaving = false;
  }

  type(event, text) {
    event.preventDefault();
    this.code.setRangeText(text, this.code.selectionStart, this.code.selectionEnd, "end");
    this.code.dispatchEvent(new Event("input"));
  }
}

/* What was written stays in this browser, where the browser allows it. */
function keep(task, code) {
  try {
    localStorage.setItem(`teachdist-${task}`, code);
  } catch {} // private windows refuse
}

function kept(task) {
  try {
    return localStorage.getItem(`teachdist-${task}`);
  } catch {
    return null;
  }
}
