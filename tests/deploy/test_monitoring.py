"""Alert rules and the dashboard ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from flowfabric.counters import COUNTERS, Distribution, EventCount
from tests.all_cases import all_cases
from tests.deploy.commands import DEPLOY

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/flowfabric.json").read_text())
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    },
}
LABELS = {
    name: each.labels
    for each in COUNTERS
    for name in (
        [f"{each.name}_{part}" for part in ("bucket", "sum", "count")]
        if isinstance(each, Distribution)
        else [each.name]
    )
}
OF_SCRAPES = {"job", "instance", "le"}


@all_cases("name", EXPRESSIONS)
def test_an_expression_uses_metrics_and_labels_that_exist(name: str) -> None:
    expression = EXPRESSIONS[name]
    asked = re.findall(r"\b(ff_\w+)(?:\{([^}]*)\})?", expression)
    labels = {label for metric, _ in asked for label in LABELS.get(metric, ())} | OF_SCRAPES

    assert asked
    assert {metric for metric, _ in asked} <= set(LABELS)
    for metric, selector in asked:
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= set(LABELS[metric])
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {each.strip() for each in grouped.split(",")} <= labels
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "{}", "[]"))


def test_only_what_grows_has_a_rate() -> None:
    growing = {each.name for each in COUNTERS if isinstance(each, EventCount)} | {
        name for name in LABELS if name.endswith(("_bucket", "_sum", "_count"))
    }
    for expression in EXPRESSIONS.values():
        of_rates = re.findall(r"(?:rate|increase)\((ff_\w+)", expression)
        assert set(of_rates) <= growing
        for metric in re.findall(r"\b(ff_\w+)", expression):
            if metric in growing:
                assert metric in of_rates, f"{metric} without a rate in {expression}"


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        said = rule["annotations"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(said) == {"summary", "description"}
        shown = set(re.findall(r"\$labels\.(\w+)", said["summary"] + said["description"]))
        grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        kept = set.intersection(*({each.strip() for each in by.split(",")} for by in grouped)) if (
            grouped
        ) else set()  # fmt: skip
        assert shown <= kept, rule["alert"]


def test_alerts_ask_for_words_that_are_counted() -> None:
    text = " ".join(EXPRESSIONS.values())

    assert set(re.findall(r'outcome=~?"([^"]+)"', text)) == {"error|timeout", "err", "fired"}
    assert set(re.findall(r'state="([^"]+)"', text)) == {"waiting"}


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD["panels"])))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}

    assert len(DASHBOARD["panels"]) >= 10
    assert len(set(places)) == len(places)
    assert len(set(ids)) == len(ids)
    assert {name for name in used if not name.startswith("__")} <= variables


def test_prometheus_reads_the_rules_where_compose_puts_them() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    settings = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    mounts = [each.split(":") for each in compose["services"]["prometheus"]["volumes"]]

    assert all((DEPLOY / source).is_file() for source, _, _ in mounts)
    assert set(settings["rule_files"]) <= {target for _, target, _ in mounts}
    for job in settings["scrape_configs"]:
        named = [name for each in job.get("dns_sd_configs", ()) for name in each["names"]]
        hosts = [
            target.split(":")[0]
            for each in job.get("static_configs", ())
            for target in each["targets"]
        ]
        assert {*named, *hosts} <= set(compose["services"])
