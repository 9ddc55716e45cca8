"""One adapter script per system; each runs under that system's own interpreter."""
