/* The browser's Python, in a thread of its own: an endless loop freezes nothing and can be stopped. */
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = (name) => new URL(name, import.meta.url).href;
const fetched = async (name) => {
  const answer = await fetch(here(name));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer;
};

const python = (async () => {
  const pyodide = await loadPyodide({ indexURL: here("./pyodide/") });
  pyodide.unpackArchive(await (await fetched("./teachdist.zip")).arrayBuffer(), "zip");
  pyodide.runPython(await (await fetched("./playground.py")).text());
  return pyodide.globals.get("answer");
})();

onmessage = async ({ data: { id, call, given } }) => {
  try {
    postMessage({ id, result: JSON.parse((await python)(call, JSON.stringify(given))) });
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error) });
  }
};
