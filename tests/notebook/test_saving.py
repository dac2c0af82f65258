"""Saved notebooks: players go, everything else stays."""

from teachdist.notebook.saving import without_players

WIDGET = "application/vnd.jupyter.widget-view+json"


def notebook(*datas):
    cells = [
        {"cell_type": "markdown", "source": "x"},
        {"cell_type": "code", "outputs": [{"data": dict(data)} for data in datas]},
        {"cell_type": "code", "outputs": [{"output_type": "stream", "text": "x"}]},
    ]
    return {"type": "notebook", "content": {"cells": cells}}


def test_a_player_goes_where_there_is_a_picture():
    saved = notebook({WIDGET: {"model_id": "1"}, "text/html": "<img>", "text/plain": "x"})
    without_players(saved)
    (output,) = saved["content"]["cells"][1]["outputs"]
    assert output["data"] == {"text/html": "<img>", "text/plain": "x"}


def test_a_widget_of_others_without_a_picture_stays():
    only = {WIDGET: {"model_id": "1"}, "text/plain": "x"}
    saved = notebook(only)
    without_players(saved)
    assert saved == notebook(only)


def test_what_is_no_notebook_is_left_alone():
    file = {"type": "file", "content": "text"}
    without_players(file, path="x", contents_manager=None)
    assert file == {"type": "file", "content": "text"}
    without_players({"type": "notebook", "content": None})
