"""The playground in a browser: Python itself starts in the page, offline, and judges code."""

import pytest
from browsing import SITE

pytestmark = pytest.mark.timeout(480)  # the first to come builds the site


ENDLESS = "def f(rank, size):\n    while True:\n        yield from ()\n"


@pytest.fixture
def page(visit):
    if not (SITE / "assets" / "pyodide" / "pyodide.mjs").is_file():
        pytest.skip("the site was built without pyodide: npm could not fetch it")
    one = visit("playground.html")
    one.page.get_by_role("button", name="Start Python").click()
    one.page.wait_for_selector("#td-code", timeout=90_000)
    return one.page


def verdict(page, says):
    page.wait_for_function(
        "says => document.querySelector('.td-verdict')?.textContent.includes(says)",
        arg=says,
        timeout=60_000,
    )
    return page.text_content(".td-verdict")


def test_a_lesson_in_the_browser(page):
    """One visit, since starting Python takes seconds: prove, step, price, break, solve."""
    page.get_by_role("button", name="Prove it").click()
    assert "1 to 16 ranks" in verdict(page, "proven")

    page.get_by_role("button", name="Step through").click()
    page.wait_for_selector(".td-picture .player")
    page.get_by_role("button", name="One round on").click()
    assert page.get_attribute(".player", "data-at") == "1.00"

    page.get_by_role("button", name="Price it").click()
    verdict(page, "your ring")
    assert page.locator(".td-picture svg polyline, .td-picture svg path").count() > 3

    code = page.input_value("#td-code")
    page.fill("#td-code", code.replace("Reduce(left", "Recv(left"))
    page.get_by_role("button", name="Prove it").click()
    assert "loses the contribution" in verdict(page, "refuted")
    assert page.locator(".td-picture .player .fault").count() == 1

    page.select_option("[name=task]", "linear_broadcast")
    page.get_by_role("button", name="Prove it").click()
    verdict(page, "not yet")
    page.fill(
        "#td-code",
        "def linear_broadcast(rank, size, *, root):\n"
        "    if rank == root:\n"
        "        yield tuple(Send(peer, 0) for peer in range(size) if peer != root)\n"
        "    else:\n"
        "        yield Recv(root, 0)\n",
    )
    page.get_by_role("button", name="Prove it").click()
    assert "td-good" in page.get_attribute(".td-verdict", "class") or verdict(page, "passed")

    page.select_option("[name=task]", "")
    page.fill("#td-code", ENDLESS)
    page.get_by_role("button", name="Prove it").click()
    page.get_by_role("button", name="Stop").click()
    verdict(page, "Stopped")
