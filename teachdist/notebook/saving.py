"""What is left out when a notebook is saved: players, which nothing can play without their kernel.

A saved player is an error message in place of a picture. `show` gives every output a still picture
as well, so without the player a reopened notebook shows that. As a hook of Jupyter's server:

    jupyter lab --ContentsManager.pre_save_hook=teachdist.notebook.saving.without_players
"""

_WIDGET = "application/vnd.jupyter.widget-view+json"


def without_players(model, path=None, contents_manager=None):
    """Take widgets out of the outputs of a notebook that have another form too."""
    if model.get("type") != "notebook" or not model.get("content"):
        return
    for cell in model["content"].get("cells", ()):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                data.pop(_WIDGET, None)
