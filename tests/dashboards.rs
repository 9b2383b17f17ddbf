//! `docs/grafana/` and `docs/prometheus/`: every file parses, every metric exists, every query of the API is
//! answered, and every alert has its section in `docs/operations.md`.
//!
//! Queries are sent as Grafana's data source for OpenTSDB sends them. Where `promtool` is installed, it checks
//! the rules, too.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tsd_testkit::{Daemon, http};
use yaml_rust2::{Yaml, YamlLoader};

use crate::{report, tsdb};

/// Metrics of Prometheus itself.
const OF_PROMETHEUS: [&str; 1] = ["up"];

fn docs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(docs(path)).unwrap_or_else(|error| panic!("docs/{path}: {error}"))
}

fn dashboard(name: &str) -> Value {
    let path = format!("grafana/dashboards/{name}.json");
    serde_json::from_str(&text(&path)).unwrap_or_else(|error| panic!("docs/{path}: {error}"))
}

fn yaml(path: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(&text(path))
        .unwrap_or_else(|error| panic!("docs/{path}: {error}"));
    assert_eq!(documents.len(), 1, "docs/{path}");
    documents.remove(0)
}

/// Every target of a dashboard with the title of its panel.
fn targets(dashboard: &Value) -> Vec<(String, Value)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels
        .iter()
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title").to_owned();
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            targets.into_iter().map(move |target| (title.clone(), target))
        })
        .collect()
}

/// Names of metrics in an expression of Prometheus.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !is_name(c));
    let ours = words.filter(|word| {
        word.starts_with("tsd_") || word.starts_with("process_") || OF_PROMETHEUS.contains(word)
    });
    ours.map(str::to_owned).collect()
}

/// Fails unless docs/metrics.md describes the metrics of an expression.
#[track_caller]
fn check_expression(expression: &str, page: &str) {
    let names = metrics_of(expression);
    assert!(!names.is_empty(), "no metric in {expression}");
    for name in names.iter().filter(|name| !OF_PROMETHEUS.contains(&name.as_str())) {
        let is_described =
            |name: &str, kind: &str| page.contains(&format!("\n| `{name}` | {kind}"));
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
        assert!(
            is_described(name, "counter")
                || is_described(name, "gauge")
                || histogram.is_some_and(|base| is_described(base, "histogram")),
            "{name} in {expression} is not in docs/metrics.md"
        );
        let is_counted = name.ends_with("_total") || histogram.is_some();
        let is_used_as_counter =
            ["rate(", "increase("].iter().any(|call| expression.contains(&format!("{call}{name}")));
        assert_eq!(is_counted, is_used_as_counter, "{name} in {expression}");
    }
    let count = |c: char| expression.matches(c).count();
    assert_eq!(count('('), count(')'), "{expression}");
    assert_eq!(count('{'), count('}'), "{expression}");
}

#[test]
fn metrics_of_the_daemon_dashboard_exist() {
    let page = text("metrics.md");
    let dashboard = dashboard("daemon");
    let targets = targets(&dashboard);
    assert!(targets.len() > 30, "{}", targets.len());
    for (title, target) in &targets {
        let expression = target["expr"].as_str().unwrap_or_else(|| panic!("{title}"));
        check_expression(expression, &page);
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["query"]["query"].as_str() {
            check_expression(query, &page);
        }
    }
}

#[test]
fn panels_and_variables_are_distinct() {
    for name in ["daemon", "metrics"] {
        let dashboard = dashboard(name);
        let panels = dashboard["panels"].as_array().expect("panels");
        let ids: BTreeSet<i64> =
            panels.iter().map(|panel| panel["id"].as_i64().expect("id")).collect();
        assert_eq!(ids.len(), panels.len(), "{name}");
        // A variable may use only earlier variables.
        let mut known = BTreeSet::new();
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            let definition = variable["definition"].as_str().unwrap_or_default();
            let used = definition.split('$').skip(1);
            for used in used.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next()) {
                assert!(known.contains(used.expect("a name")), "{name}: {definition}");
            }
            assert!(known.insert(variable["name"].as_str().expect("a name")), "{name}");
        }
        assert!(dashboard["uid"].as_str().is_some_and(|uid| uid.starts_with("saltern-")));
    }
}

#[test]
fn data_sources_are_provisioned() {
    let sources = yaml("grafana/provisioning/datasources/saltern.yaml");
    assert_eq!(sources["apiVersion"].as_i64(), Some(1));
    let types: Vec<_> = sources["datasources"].as_vec().expect("a list").iter().collect();
    let of = |kind: &str| types.iter().find(|source| source["type"].as_str() == Some(kind));
    let opentsdb = of("opentsdb").expect("one for OpenTSDB");
    assert_eq!(opentsdb["url"].as_str(), Some("http://localhost:4242"));
    assert_eq!(opentsdb["jsonData"]["tsdbVersion"].as_i64(), Some(3));
    assert!(of("prometheus").is_some());
    let dashboards = yaml("grafana/provisioning/dashboards/saltern.yaml");
    assert_eq!(dashboards["providers"][0]["type"].as_str(), Some("file"));
}

#[test]
fn alerts_use_metrics_that_exist_and_have_their_section() {
    let (page, operations) = (text("metrics.md"), text("operations.md"));
    let rules = yaml("prometheus/alerts.yml");
    let groups = rules["groups"].as_vec().expect("groups");
    let mut names = BTreeSet::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules")) {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        let expression = rule["expr"].as_str().unwrap_or_else(|| panic!("{name}"));
        check_expression(expression, &page);
        let section = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"].as_str(), Some(section.as_str()), "{name}");
        assert!(rule["annotations"]["summary"].as_str().is_some(), "{name}");
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("page" | "ticket")), "{name}");
    }
    let sections: BTreeSet<String> = operations
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(str::to_owned)
        .collect();
    assert_eq!(names, sections, "alerts, and sections of docs/operations.md");
    let scrape = yaml("prometheus/prometheus.yml");
    assert_eq!(scrape["scrape_configs"][0]["metrics_path"].as_str(), Some("/metrics"));
    assert_eq!(scrape["scrape_configs"][0]["job_name"].as_str(), Some("saltern"));
    assert_eq!(scrape["rule_files"][0].as_str(), Some("alerts.yml"));
}

#[test]
fn promtool_accepts_the_rules() {
    let check = |arguments: [&str; 2], file: &str| {
        Command::new("promtool").args(arguments).arg(docs(file)).output()
    };
    let Ok(rules) = check(["check", "rules"], "prometheus/alerts.yml") else {
        return report("skipped: promtool is not installed");
    };
    assert!(rules.status.success(), "{}", String::from_utf8_lossy(&rules.stdout));
    let config = check(["check", "config"], "prometheus/prometheus.yml").expect("promtool");
    assert!(config.status.success(), "{}", String::from_utf8_lossy(&config.stdout));
}

/// Tags and metric of the points that the tests put.
const METRIC: &str = "sys.load";
const HOSTS: [&str; 3] = ["web01", "web02", "db01"];
const START: u64 = 1_600_000_000;

/// A daemon with default settings, and points.
fn daemon_with_points(directory: &Path) -> Daemon {
    let daemon = tsdb(directory).start();
    let points: Vec<Value> = HOSTS
        .iter()
        .flat_map(|host| {
            (0..10).map(move |n| {
                json!({"metric": METRIC, "timestamp": START + n * 60, "value": n, "tags": {"host": host, "dc": "x"}})
            })
        })
        .collect();
    let body = Value::from(points).to_string();
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(&body)).status, 204);
    daemon
}

/// A text of a dashboard as Grafana sends it, with a value for each variable.
fn interpolate(text: &str, tagv: &str) -> String {
    text.replace("$metric", METRIC)
        .replace("$tagk", "host")
        .replace("$tagv", tagv)
        .replace("$interval", "1m")
}

/// The sub query that Grafana's data source makes of a target.
fn sub_query(target: &Value, tagv: &str) -> Value {
    let text = |name: &str| target[name].as_str().map(|text| interpolate(text, tagv));
    let mut query = json!({ "metric": text("metric"), "aggregator": text("aggregator") });
    if target["shouldComputeRate"] == true {
        query["rate"] = true.into();
        query["rateOptions"] = json!({ "counter": target["isCounter"], "dropResets": true });
    }
    let interval = text("downsampleInterval").expect("an interval");
    let function = text("downsampleAggregator").expect("a function");
    query["downsample"] = format!("{interval}-{function}").into();
    let mut filters = target["filters"].clone();
    for filter in filters.as_array_mut().expect("filters") {
        for name in ["tagk", "filter"] {
            filter[name] = interpolate(filter[name].as_str().expect("a text"), tagv).into();
        }
    }
    query["filters"] = filters;
    query
}

#[test]
fn queries_of_the_metrics_dashboard_are_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon_with_points(directory.path());
    let targets = targets(&dashboard("metrics"));
    assert!(targets.len() > 5, "{}", targets.len());
    for (title, target) in targets {
        // All values, one, and two, as Grafana joins them.
        for (tagv, selected) in [(".*", 3), ("web01", 1), ("web01|web02", 2)] {
            let body = json!({
                "start": START * 1_000,
                "end": (START + 600) * 1_000,
                "queries": [sub_query(&target, tagv)],
                "msResolution": true,
                "globalAnnotations": true,
                "showQuery": true,
            });
            let response = http(daemon.address(), "POST", "/api/query", Some(&body.to_string()));
            assert_eq!(response.status, 200, "{title}: {}", response.body);
            let series: Value = serde_json::from_str(&response.body).expect("JSON");
            let series = series.as_array().expect("an array");
            let is_grouped = target["filters"][0]["groupBy"] == true;
            assert_eq!(series.len(), if is_grouped { selected } else { 1 }, "{title} of {tagv}");
            for one in series {
                assert!(!one["dps"].as_object().expect("points").is_empty(), "{title}");
                // The data source finds the target of a series by it.
                assert_eq!(one["query"]["index"], 0, "{title}");
            }
        }
    }
    assert!(daemon.terminate().success());
}

#[test]
fn values_of_template_variables_need_no_tracking() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon_with_points(directory.path());
    let get = |uri: &str| -> Value {
        let response = http(daemon.address(), "GET", uri, None);
        assert_eq!(response.status, 200, "{uri}: {}", response.body);
        serde_json::from_str(&response.body).expect("JSON")
    };
    let dashboard = dashboard("metrics");
    let queries: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .filter(|variable| variable["type"] == "query")
        .map(|variable| variable["query"].as_str().expect("a query"))
        .collect();
    assert_eq!(queries, ["metrics()", "tag_names($metric)", "tag_values($metric,$tagk)"]);
    // The requests of `metrics()`, `tag_names(…)` and `tag_values(…)`.
    assert_eq!(get("/api/suggest?type=metrics&q=&max=1000"), json!([METRIC]));
    let tags = |uri: &str| -> Vec<Value> {
        let found = get(uri);
        let results = found["results"].as_array().expect("results").clone();
        results.into_iter().map(|series| series["tags"].clone()).collect()
    };
    let names = tags(&format!("/api/search/lookup?m={METRIC}&limit=1000"));
    assert!(names.iter().all(|tags| tags["host"].is_string() && tags["dc"] == "x"), "{names:?}");
    for uri in [
        format!("/api/search/lookup?m={METRIC}%7Bhost%3D*%7D&limit=1000"),
        format!("/api/search/lookup?m={METRIC}%7Bhost=*,dc=x%7D&limit=1000"),
    ] {
        let mut hosts: Vec<String> =
            tags(&uri).iter().filter_map(|tags| tags["host"].as_str().map(str::to_owned)).collect();
        hosts.sort();
        assert_eq!(hosts, ["db01", "web01", "web02"], "{uri}");
    }
    // Those of the query editor.
    assert_eq!(get("/api/suggest?type=tagv&q=web&max=1000"), json!(["web01", "web02"]));
    assert!(get("/api/aggregators").as_array().expect("names").contains(&json!("sum")));
    assert!(get("/api/config/filters").as_object().expect("filters").contains_key("regexp"));
    assert!(daemon.terminate().success());
}
