"""Negative controls: faults that are planted one at a time, and the tests that must find each."""
