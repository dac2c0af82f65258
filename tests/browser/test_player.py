"""The player on a page: by mouse and by keyboard, in words, in the dark, and without motion."""

import pytest

from teachdist.notebook.show import page
from teachdist.pictures.scene import scene

pytestmark = pytest.mark.timeout(480)  # the first to come builds the site


PAGE = "algorithms/broadcast.html"  # nothing plays by itself there


@pytest.fixture
def player(visit):
    one = visit(PAGE, viewport={"width": 1280, "height": 900})
    shown = one.page.locator(".player").first
    shown.scroll_into_view_if_needed()
    return shown


def at(player):
    return float(player.get_attribute("data-at"))


def rounds(player):
    return int(player.locator("input[type=range]").get_attribute("max"))


def press(player, name):
    player.get_by_role("button", name=name).click()


def test_buttons_step_on_and_back(player):
    assert at(player) == 0
    press(player, "One round on")
    press(player, "One round on")
    assert at(player) == 2
    assert "round 1 of" in player.locator(".where").text_content()
    press(player, "One round back")
    assert at(player) == 1
    press(player, "Back to the start")
    assert at(player) == 0


def test_keys_do_the_same(player):
    player.locator("input[type=range]").focus()
    page = player.page
    page.keyboard.press("ArrowRight")
    assert at(player) == 1
    page.keyboard.press("End")
    assert at(player) == rounds(player)
    page.keyboard.press("ArrowLeft")
    assert at(player) == rounds(player) - 1
    page.keyboard.press("Home")
    assert at(player) == 0
    page.keyboard.press("k")
    page.wait_for_function("p => Number(p.dataset.at) > 0.1", arg=player.element_handle())
    page.keyboard.press("k")
    stopped = at(player)
    assert player.get_by_role("button", name="Play").count() == 1
    assert at(player) == stopped


def test_playing_moves_messages_and_ends_at_the_end(player):
    player.locator("[name=speed]").select_option("4")
    press(player, "Play")
    player.page.wait_for_function(
        "p => p.querySelectorAll('.packet').length > 0", arg=player.element_handle()
    )
    player.get_by_role("button", name="Play").wait_for()
    assert at(player) == rounds(player)


def test_scrubbing_shows_the_middle_of_a_round(player):
    slider = player.locator("input[type=range]")
    slider.evaluate("s => { s.value = 0.5; s.dispatchEvent(new Event('input')); }")
    assert at(player) == 0.5
    assert player.locator(".packet").count() == 1
    slider.evaluate("s => s.dispatchEvent(new Event('change'))")
    assert at(player) in (0, 1)


def test_layouts_and_following_a_rank(player):
    for layout in ("ring", "line", "grid"):
        player.locator("[name=layout]").select_option(layout)
        assert player.locator(".rank").count() == 4
    player.locator("[data-rank='1']").click()
    assert player.locator("[name=follow]").input_value() == "1"
    press(player, "One round on")
    assert player.locator(".rank.followed").count() == 1
    player.locator("[data-rank='1']").click()
    assert player.locator("[name=follow]").input_value() == ""


def test_every_round_is_also_told_in_words(player):
    press(player, "One round on")
    caption = player.locator(".caption").text_content()
    assert "→" in caption
    assert caption in player.locator(".stage").get_attribute("aria-label")
    assert player.locator("input[type=range]").get_attribute("aria-valuetext").startswith("round 0")
    player.locator("summary").click()
    player.locator("li button").nth(1).click()
    assert at(player) == 2
    assert player.locator("li[aria-current]").count() == 1


def test_recorded_values_are_told_round_by_round_and_by_rank(browser, tmp_path):
    found = scene("ring", "all_reduce", 2)
    found["rounds"][0]["values"] = {"0": "0: 3", "1": "1: <7>"}
    (tmp_path / "player.html").write_text(page([found]), encoding="utf-8")
    shown = browser.new_page()
    shown.goto((tmp_path / "player.html").as_uri())
    player = shown.locator(".player")
    assert player.locator(".values").text_content() == ""
    press(player, "One round on")
    assert player.locator(".values dd").all_text_contents() == ["0: 3", "1: <7>"]
    player.locator("[name=follow]").select_option("1")
    assert player.locator(".values").text_content() == "rank 11: <7>"
    press(player, "One round on")
    assert player.locator(".values").text_content() == ""
    shown.close()


def test_it_is_dark_on_dark_ground(visit):
    one = visit(PAGE, color_scheme="dark")
    assert "dark" in one.page.locator(".player").first.get_attribute("class")
    one.page.locator("label[for=__palette_0]").click()
    one.page.wait_for_function(
        "!document.querySelector('.teachdist-player').shadowRoot.querySelector('.dark')"
    )


def test_with_reduced_motion_nothing_moves_by_itself_and_playing_shows_whole_rounds(visit):
    one = visit("index.html", reduced_motion="reduce")
    player = one.page.locator(".player").first
    player.locator("[name=speed]").select_option("4")
    assert at(player) == 0
    press(player, "Play")
    one.page.wait_for_function("p => Number(p.dataset.at) >= 1", arg=player.element_handle())
    assert player.locator(".packet").count() == 0


def test_the_home_page_plays_by_itself(visit):
    one = visit("index.html")
    shown = one.page.locator(".player").first.element_handle()
    one.page.wait_for_function("p => Number(p.dataset.at) > 0.2", arg=shown)
