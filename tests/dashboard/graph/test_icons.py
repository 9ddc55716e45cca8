"""The icons of the graph are those of the sprite."""

from __future__ import annotations

from flowfabric.dashboard.assets import STATIC
from flowfabric.dashboard.graph.icons import ICON_PATHS
from flowfabric.dashboard.view.sentences import STATES


def test_the_icon_of_every_state_is_one_path() -> None:
    assert {look.icon for look in STATES.values()} <= ICON_PATHS.keys()


def test_the_icons_of_states_can_be_drawn_anywhere() -> None:
    for look in STATES.values():
        path = ICON_PATHS[look.icon]
        assert path.startswith("m")
        assert path == path.lower()


def test_the_script_that_recolours_a_graph_knows_the_icon_of_every_state() -> None:
    script = (STATIC / "graph_colours.js").read_text()

    for state, look in STATES.items():
        assert f'{state.value}: "{look.icon}"' in script
