"""`ff tokens` and the refusals of `ff server`."""

from tests.cli.conftest import *  # noqa: F403
