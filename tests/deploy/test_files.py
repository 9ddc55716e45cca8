"""Containers, manifests and units name commands, files, ports and probes that there are."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowfabric.server.routes import ROUTES
from flowfabric.server.settings import Settings
from flowfabric.states import Scope
from tests.all_cases import all_cases
from tests.deploy.commands import DEPLOY, ROOT, check_command, option

STEPS = [
    (word, rest)
    for word, rest in re.findall(
        r"^([A-Z]+) (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE
    )
]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
MANIFESTS: list[dict[str, Any]] = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
PROBES = {route.path for route in ROUTES if route.scope is Scope.PUBLIC} - {"/docs"}
"""What a probe may ask for without a token."""
VARIABLES = {
    name
    for path in (ROOT / "src/flowfabric").rglob("*.py")
    for name in re.findall(r'"(FF_[A-Z_]+)"', path.read_text())
}
"""The variables of the environment that the code reads."""
PLACES = [ROOT / "docs/operations.md", *(each for each in DEPLOY.rglob("*") if each.is_file())]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def stop_of_the_server(given: Mapping[str, str]) -> float:
    """The seconds that a server with these variables takes at most after SIGTERM."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        settings = Settings(listen="127.0.0.1:0")
    return settings.drain_delay + settings.shutdown_grace


@all_cases("path", PLACES, ids=lambda path: path.name)
def test_a_variable_that_is_named_is_one_that_is_read(path: Path) -> None:
    assert set(re.findall(r"\bFF_[A-Z_]+\b", path.read_text())) <= VARIABLES


def test_a_probe_needs_no_token() -> None:
    assert {"/livez", "/readyz", "/healthz", "/metrics"} <= PROBES


# The image.


def test_the_image_installs_extras_that_there_are() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    [installed] = re.findall(r"\.whl\)\[([^\]]+)\]", " ".join(rest for _, rest in STEPS))

    assert set(installed.split(",")) <= extras


def test_the_image_runs_a_worker_without_a_shell_and_not_as_root() -> None:
    words = dict(STEPS)

    command = json.loads(words["CMD"])
    check_command(command)
    assert words["USER"].split(":")[0] not in ("", "0", "root")
    assert words["STOPSIGNAL"] == "SIGTERM"
    assert option(command, "--metrics-port") in words["EXPOSE"].split()


def test_the_image_copies_what_its_build_makes() -> None:
    stages = [rest.split(" AS ")[-1] for word, rest in STEPS if word == "FROM"]
    made = [rest.split()[-1] for word, rest in STEPS if word == "RUN" and " -m venv " in rest]
    copied = [
        re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest)
        for word, rest in STEPS
        if word == "COPY" and rest.startswith("--from")
    ]

    [copy] = copied
    assert copy is not None
    assert copy[1] in stages
    assert copy[2] == copy[3] in made
    assert f"PATH={copy[3]}/bin:$PATH" in dict(STEPS)["ENV"]


# Compose.


@pytest.mark.parametrize("name", ["migrate", "server", "worker"])
def test_a_service_runs_a_command_after_what_it_needs(name: str) -> None:
    service = COMPOSE[name]

    check_command(service["command"])
    assert (DEPLOY / service["build"]["dockerfile"]).is_file()
    assert set(service["depends_on"]) <= set(COMPOSE)
    assert {key for key in service["environment"] if key != "<<"} <= VARIABLES


def test_compose_waits_longer_than_the_worker_drains() -> None:
    worker = COMPOSE["worker"]

    assert seconds(worker["stop_grace_period"]) > float(option(worker["command"], "--drain"))


def test_compose_waits_longer_than_the_server_takes_to_stop() -> None:
    server = COMPOSE["server"]
    given = {name: server["environment"].get(name, "") for name in ("FF_SHUTDOWN_GRACE",)}

    assert seconds(server["stop_grace_period"]) > stop_of_the_server(given)


def test_the_server_is_reached_from_this_machine_alone_and_its_probe_is_a_route() -> None:
    server = COMPOSE["server"]
    [path] = re.findall(r"http://127\.0\.0\.1:9090(/\w+)'", server["healthcheck"]["test"][-1])

    assert path in PROBES
    assert all(each.startswith("127.0.0.1:") for each in server["ports"])
    assert "change-me" not in server["environment"]["FF_API_TOKEN"]


# Kubernetes.


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == kind}


def containers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its pod."""
    return [
        (container, each["spec"]["template"]["spec"])
        for each in MANIFESTS
        if each["kind"] in ("Deployment", "Job")
        for container in each["spec"]["template"]["spec"]["containers"]
    ]


def test_the_manifests_are_those_of_a_whole_deployment() -> None:
    assert set(named("Deployment")) == {"flowfabric-server", "flowfabric-worker"}
    assert set(named("PodDisruptionBudget")) == set(named("Deployment"))
    assert set(named("Service")) == {"flowfabric-server"}
    assert set(named("Job")) == {"flowfabric-migrate"}


def test_selectors_choose_the_pods_of_their_deployment() -> None:
    for name, deployment in named("Deployment").items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        budget = named("PodDisruptionBudget")[name]
        assert budget["spec"]["selector"]["matchLabels"] == labels
    service = named("Service")["flowfabric-server"]
    server = named("Deployment")["flowfabric-server"]
    assert service["spec"]["selector"] == server["spec"]["selector"]["matchLabels"]


def test_containers_run_commands_with_secrets_and_variables_that_exist() -> None:
    for container, pod in containers():
        check_command(container["command"])
        for source in container["envFrom"]:
            assert source["secretRef"]["name"] in named("Secret")
        assert {each["name"] for each in container.get("env", ())} <= VARIABLES
        mounted = {each["name"] for each in container.get("volumeMounts", ())}
        assert mounted <= {each["name"] for each in pod.get("volumes", ())}
    assert set(named("Secret")["flowfabric"]["stringData"]) <= VARIABLES


def test_probes_ask_for_routes_at_ports_of_the_container() -> None:
    asked: dict[str, str] = {}
    for container, _ in containers():
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container:
                probe = container[kind]["httpGet"]
                assert probe["path"] in PROBES
                assert probe["port"] in ports
                asked[f"{container['name']} {kind}"] = probe["path"]
        if "--metrics-port" in container["command"]:
            assert int(option(container["command"], "--metrics-port")) in ports.values()
    assert asked == {
        "server startupProbe": "/livez",
        "server livenessProbe": "/livez",
        "server readinessProbe": "/readyz",
        "worker livenessProbe": "/metrics",
    }


def test_pods_are_killed_only_after_they_had_time_to_drain() -> None:
    for container, pod in containers():
        grace = pod.get("terminationGracePeriodSeconds", 30)
        variables = {each["name"]: each["value"] for each in container.get("env", ())}
        if container["name"] == "worker":
            assert grace > float(option(container["command"], "--drain"))
        if container["name"] == "server":
            assert grace > stop_of_the_server(variables)


# systemd.


@pytest.mark.parametrize(
    "path", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda p: p.stem
)
def test_a_unit_starts_a_command_and_gives_it_time_to_stop(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(path.read_text())
    service = unit["Service"]
    command = shlex.split(service["ExecStart"])

    check_command(command)
    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "always"
    assert (path.parent / Path(service["EnvironmentFile"]).name).is_file()
    if "--drain" in command:
        assert seconds(service["TimeoutStopSec"]) > float(option(command, "--drain"))
    else:
        assert seconds(service["TimeoutStopSec"]) > stop_of_the_server({})


def test_no_file_has_a_secret_that_somebody_may_keep() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            for password in re.findall(r"postgresql://\w+:([^@]+)@", path.read_text()):
                assert password == "change-me", path
