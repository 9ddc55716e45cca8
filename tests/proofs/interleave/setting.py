"""All scenes of a database, each set once and kept to be put back."""

from __future__ import annotations

from collections.abc import Sequence

from tests.proofs.interleave.saved import emptied, save
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.situations import Situation
from tests.proofs.interleave.stage import Stage


async def set_scenes(
    stage: Stage, situations: Sequence[Situation], *, descending: Sequence[bool] = (False,)
) -> dict[str, Scene]:
    """The scenes by name; those whose ids descend are called so."""
    scenes: dict[str, Scene] = {}
    for situation in situations:
        for down in descending:
            name = f"{situation.name} descending" if down else situation.name
            scene = scenes[name] = Scene(name, descending=down)
            await emptied(stage.db)
            await situation.build(stage.engines[0], stage.clock, scene)
            scene.learn()
            await save(stage.db, name)
    return scenes
