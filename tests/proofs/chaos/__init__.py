"""Real processes under a seeded schedule of kills, freezes, cuts and a Postgres that dies."""
