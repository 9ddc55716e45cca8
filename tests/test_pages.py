"""Limits of pages and batches."""

import pytest

from flowfabric.errors import ValidationError
from flowfabric.pages import MAX_PAGE, check_limit, page_size


@pytest.mark.parametrize(
    ("limit", "size"), [(0, 0), (1, 1), (MAX_PAGE, MAX_PAGE), (MAX_PAGE + 1, MAX_PAGE)]
)
def test_a_page_is_clamped(limit: int, size: int) -> None:
    assert page_size(limit) == size


def test_a_page_is_not_negative() -> None:
    with pytest.raises(ValidationError, match="limit -1 must not be negative"):
        page_size(-1)


@pytest.mark.parametrize("limit", [1, 500])
def test_a_limit_in_range_is_given_back(limit: int) -> None:
    assert check_limit(limit, at_most=500) == limit


@pytest.mark.parametrize("limit", [-1, 0, 501])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ValidationError, match=f"batch_size {limit} must be 1 to 500") as refused:
        check_limit(limit, at_most=500, field="batch_size")

    assert refused.value.code == "invalid_input"
