"""A lesson in JupyterLab: the quickstart runs, the player moves, a hang ends, ranks begin anew."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from browsing import ARTIFACTS, FLAGS, ROOT

pytestmark = pytest.mark.timeout(480)


QUICKSTART = ROOT / "notebooks" / "00-quickstart.ipynb"
HANG = "%%ranks\nif rank != 1:\n    dist.barrier()\nelse:\n    import time\n    time.sleep(600)"
AFTER = ['%%ranks\nprint("alive", rank)', "%ranks restart", '%%ranks\nprint("fresh", rank)']
LAST = ["%ranks stop"]
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight exist too
}
MARK = "TEACHDIST_TEST_OF_LAB"


def lesson():
    """The quickstart up to its first player, then a hang, and what comes after."""
    book = json.loads(QUICKSTART.read_text("utf-8"))
    sources = ["".join(cell["source"]) for cell in book["cells"]]
    until = next(n for n, source in enumerate(sources) if "teachdist.show(" in source)
    cells = book["cells"][: until + 1]
    for cell in cells:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    for number, source in enumerate([HANG, *AFTER, *LAST]):
        cells.append(
            {
                "cell_type": "code",
                "id": f"more-{number}",
                "source": source,
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            }
        )
    return {**book, "cells": cells}


@pytest.fixture
def lab(tmp_path):
    """(address, folder) of a JupyterLab with the lesson; afterwards nothing of it is left."""
    (tmp_path / "lesson.ipynb").write_text(json.dumps(lesson()))
    for name, setting in SETTINGS.items():
        file = tmp_path / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(setting))
    mark = uuid.uuid4().hex
    env = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": str(ROOT),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    env.pop("TEACHDIST_LIVE", None)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.open_browser=False"]
    command += ["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]
    command += [f"--ServerApp.root_dir={tmp_path}"]
    with (tmp_path / "log").open("w+") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield address_in(tmp_path / "log", server), tmp_path
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
    assert gone(mark, within=15)


def address_in(log, server, within=60):
    end = time.monotonic() + within
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:(?!0/)\d+/", log.read_text()):
            return found[0]
        time.sleep(0.1)  # a file gives no other sign
    raise AssertionError(log.read_text())


def gone(mark, within):
    """Whether within so many seconds no process of the lesson is left."""
    end = time.monotonic() + within
    while left := marked(mark):
        if time.monotonic() > end:
            raise AssertionError(f"left behind: {left}")
        time.sleep(0.1)
    return True


def marked(mark):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # gone meanwhile, or not ours
    return found


def run_menu(page, menu, item):
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=item).first.click()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="counts processes in /proc")
def test_a_lesson(lab, chromium):
    from playwright.sync_api import expect, sync_playwright

    address, folder = lab
    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        try:
            teach(page, address, expect)
            saved = json.loads((folder / "lesson.ipynb").read_text())
        finally:
            page.screenshot(path=ARTIFACTS / "lab-at-the-end.png")
            said = page.locator(".jp-OutputArea-output").all_text_contents()
            (ARTIFACTS / "lab-outputs.txt").write_text("\n---\n".join(said))
            browser.close()
    outputs = [o for cell in saved["cells"] for o in cell.get("outputs", ())]
    assert any("data:image/svg+xml" in str(o) for o in outputs)
    assert not [o for o in outputs if "application/vnd.jupyter.widget" in str(o)]


def teach(page, address, expect):
    page.goto(f"{address}lab/tree/lesson.ipynb")
    ready = page.get_by_text("Python 3 (ipykernel) | Idle")
    ready.wait_for(timeout=90_000)
    page.wait_for_selector('.jp-NotebookPanel [data-status="idle"]', timeout=60_000)
    run_menu(page, "Run", "Run All Cells")

    player = page.locator(".jp-OutputArea .player").first
    player.wait_for(timeout=90_000)
    player.scroll_into_view_if_needed()
    player.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "p => Number(p.dataset.at) > 0.3", arg=player.element_handle(), timeout=20_000
    )
    player.get_by_role("button", name="Pause").click()
    page.keyboard.press("End")
    expect(player).to_have_attribute("data-at", "6.00")
    page.screenshot(path=ARTIFACTS / "lab-player.png")
    keys_in_a_player_are_the_players_own(page, player, expect)

    hang = page.locator(".jp-CodeCell", has_text="time.sleep(600)")
    expect(hang).to_contain_text("[*]", timeout=60_000)
    run_menu(page, "Kernel", "Interrupt Kernel")
    expect(hang).to_contain_text("rank 1: stopped at cell", timeout=30_000)
    expect(hang).not_to_contain_text("Traceback")
    ready.wait_for(timeout=30_000)  # by then the kernel has thrown away what was queued
    page.screenshot(path=ARTIFACTS / "lab-interrupted.png")

    page.locator(".jp-CodeCell", has_text='print("alive", rank)').locator(".cm-content").click()
    run_menu(page, "Run", "Run Selected Cell and All Below")
    expect(output_of(page, '"alive"')).to_contain_text("alive 3", timeout=30_000)
    expect(output_of(page, "%ranks restart")).to_contain_text("ready", timeout=60_000)
    expect(output_of(page, '"fresh"')).to_contain_text("fresh 3", timeout=60_000)
    ready.wait_for(timeout=60_000)
    with page.expect_response(lambda r: r.request.method == "PUT" and "lesson" in r.url):
        page.keyboard.press("Control+s")

    run_menu(page, "Kernel", "Shut Down Kernel")
    page.reload()  # as it is tomorrow: no kernel, and all that is saved
    player.wait_for(timeout=90_000)
    player.scroll_into_view_if_needed()
    player.get_by_role("button", name="One round on").click()
    expect(player).to_have_attribute("data-at", "1.00")
    page.screenshot(path=ARTIFACTS / "lab-reopened.png")


def keys_in_a_player_are_the_players_own(page, player, expect):
    """Jupyter's keys insert, cut, merge and convert cells; in a player they must not."""
    kinds = page.locator(".jp-Notebook .jp-Cell")
    before = kinds.evaluate_all("cells => cells.map((cell) => cell.className)")
    for place in ("[data-does=back]", ".stage", "[name=layout]", "summary"):
        if place == "[name=layout]":
            player.locator(place).focus()  # a click opens its menu, which takes the keys
        else:
            player.locator(place).click()
        page.keyboard.type("abmxydd1")
        for key in ("ArrowDown", "ArrowUp", "Shift+M"):
            page.keyboard.press(key)
    expect(player).to_be_visible()
    after = kinds.evaluate_all("cells => cells.map((cell) => cell.className)")
    assert after == before


def output_of(page, source):
    return page.locator(".jp-CodeCell", has_text=source).locator(".jp-OutputArea")
