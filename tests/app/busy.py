"""A module with a task that runs in a child process and has a dependency."""

import os

from flowfabric import App, Ctx, Depends

app = App()


def price() -> str:
    return "real"


@app.task("priced", executor="process")
def priced(ctx: Ctx, price: str = Depends(price)) -> tuple[str, int]:
    return price, os.getpid()
