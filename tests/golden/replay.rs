//! Carries out the steps of a case against a daemon in this process and compares its tables.
//!
//! The daemon is the real one, listener and all; only planting and reading of raw cells goes past
//! it, straight to the store it runs on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::{ImportOptions, Node, config::Config, import};
use tsd_engine::{Engine, MetaTracking};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Scan, Storage, Table};

use super::case::{Case, GoldenCell, Step, Tables, hex};
use crate::socket;

/// Which store a replay runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Embedded,
}

/// How long background work may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Replays one case; the error says what differs.
pub(crate) fn replay(case: &Case, store: Store) -> Result<(), String> {
    let mut replay = match Replay::start(case, store) {
        Ok(_) if case.refused => return Err("the daemon started".to_owned()),
        Err(_) if case.refused => return Ok(()),
        started => started?,
    };
    let mut result = Ok(());
    for (number, step) in case.steps.iter().enumerate() {
        result = replay.step(step).map_err(|e| format!("step {}: {e}", number + 1));
        if result.is_err() {
            break;
        }
    }
    let result = result.and_then(|()| replay.compare(&case.tables));
    replay.stop();
    result
}

struct Replay {
    runtime: Runtime,
    node: Node,
    directory: TempDir,
    /// Planted cells are older than what the daemon writes, and each later than the one before.
    planted: i64,
}

impl Replay {
    fn start(case: &Case, store: Store) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut config = Config::new();
        let engine = if store == Store::Memory { "memory" } else { "embedded" };
        for (key, value) in [
            ("tsd.storage.engine", engine),
            ("tsd.storage.data_directory", directory.path().to_str().expect("a path")),
            ("tsd.network.bind", "127.0.0.1"),
            ("tsd.network.port", "0"),
            // What OpenTSDB was recorded with, where our defaults differ.
            ("tsd.storage.salt.width", "0"),
            ("tsd.core.timezone", "UTC"),
            ("tsd.storage.compaction.min_flush_threshold", "1000000"),
        ] {
            config.set_flag("golden", key, value);
        }
        for (key, value) in &case.config {
            config.set_flag("golden", key, value.as_str());
        }
        let runtime = Runtime::new().expect("runtime");
        let node = runtime.block_on(Node::start(&config)).map_err(|e| format!("no daemon: {e}"))?;
        Ok(Self { runtime, node, directory, planted: 0 })
    }

    fn stop(self) {
        self.runtime.block_on(self.node.shutdown()).expect("a clean shutdown");
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Telnet { line, reply } => self.telnet(line, reply.as_deref()),
            Step::Http { method, uri, body, status, reply } => {
                let answer = socket::http(self.node.address(), method, uri, body.as_deref());
                // Where the original broke (500), a refusal will do.
                let good = match status {
                    500 => answer.status >= 400,
                    status => answer.status == *status,
                };
                if !good {
                    return Err(format!("{uri}: {} {}", answer.status, answer.body));
                }
                // A step begins when the writes of the one before are stored.
                self.runtime.block_on(self.node.engine().compactions_idle());
                match status {
                    200 if uri.starts_with("/api/query") => same_query_reply(reply, &answer.body),
                    // Answers about notes are exact to the byte, those about points are JSON.
                    200 | 400 if uri.starts_with("/api/uid/rename") => {
                        same_text(reply, &answer.body)
                    }
                    200 if uri.starts_with("/api/annotation") => same_text(reply, &answer.body),
                    200 | 400
                        if uri.starts_with("/api/rollup") || uri.starts_with("/api/histogram") =>
                    {
                        same_json(reply, &answer.body)
                    }
                    _ => Ok(()),
                }
            }
            Step::Plant(cells) => {
                self.plant(cells);
                Ok(())
            }
            Step::Wait { ms } => {
                // The recorder waited for a clock of milliseconds (60, 100) or for background work
                // (9 000), of which there is a round a second.
                thread::sleep(Duration::from_millis(if *ms > 1_000 { 2_500 } else { 5 }));
                Ok(())
            }
            Step::Tables(tables) => self.compare(tables),
            Step::Tool { words, file, exit } => self.import(words, file, *exit),
        }
    }

    /// Sends one line and reads until the daemon, its points stored, closes.
    fn telnet(&self, line: &str, reply: Option<&str>) -> Result<(), String> {
        let answer = socket::converse(self.node.address(), format!("{line}\n").as_bytes());
        let answer = answer.strip_suffix(b"\n").unwrap_or(&answer);
        let latin_1: String = answer.iter().copied().map(char::from).collect();
        let reply = reply.unwrap_or_default();
        if reply != latin_1 && reply.as_bytes() != answer {
            return Err(format!("telnet {line:?}: {latin_1:?} instead of {reply:?}"));
        }
        Ok(())
    }

    /// The importer, over the daemon's own store: it is open once.
    fn import(&self, words: &[String], file: &[String], exit: i64) -> Result<(), String> {
        let [tool, flags @ ..] = words else { return Err("no tool".to_owned()) };
        let known = ["--skip-errors", "--auto-metric"];
        if tool != "import" || flags.iter().any(|flag| !known.contains(&flag.as_str())) {
            return Err(format!("{words:?} cannot be replayed"));
        }
        let has = |wanted| flags.iter().any(|flag| flag == wanted);
        let path = self.directory.path().join("points");
        fs::write(&path, file.join("\n")).expect("write");
        let options = ImportOptions { skip_errors: has("--skip-errors"), ..Default::default() };
        let mut settings = self.node.engine().config().clone();
        settings.uids.auto_create_metrics |= has("--auto-metric");
        settings.meta_tracking = MetaTracking::Off;
        // A process of its own would know no names either.
        let engine = Engine::start(settings, Arc::clone(self.node.storage())).expect("an engine");
        let done = self.runtime.block_on(import(&engine, &[path], options));
        self.node.engine().drop_caches();
        if done.is_ok() != (exit == 0) {
            return Err(format!("import: {done:?}"));
        }
        Ok(())
    }

    fn plant(&mut self, cells: &[(String, GoldenCell)]) {
        const PLANTED_FROM_MS: i64 = 1_500_000_000_000;
        for (table, cell) in cells {
            self.planted += 1;
            let batch = CellBatch::single(
                &unhex(&cell.row),
                CellRef {
                    family: Family::from_name(cell.family.as_bytes()).expect("a family"),
                    qualifier: &unhex(&cell.qualifier),
                    value: &unhex(&cell.value),
                    timestamp_ms: Some(PLANTED_FROM_MS + self.planted),
                },
            )
            .expect("a cell");
            let table = table_of(table);
            self.runtime.block_on(self.node.storage().put(&table, batch)).expect("planted");
        }
        let answer = socket::http(self.node.address(), "GET", "/api/dropcaches", None);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    fn dump(&self, table: &Table) -> Vec<GoldenCell> {
        self.runtime.block_on(dump(&**self.node.storage(), table))
    }

    /// Compares tables; background work may still be under way, so an early difference is no answer.
    fn compare(&self, expected: &Tables) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let result =
                expected.iter().try_for_each(|(table, cells)| self.compare_table(table, cells));
            if result.is_ok() || Instant::now() > deadline {
                return result;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn compare_table(&self, name: &str, expected: &[GoldenCell]) -> Result<(), String> {
        let mut found = self.dump(&table_of(name));
        let mut expected = expected.to_vec();
        draw_random_uid(&mut expected, &self.dump(&table_of("uid")));
        for (i, cell) in found.iter_mut().enumerate() {
            if expected.get(i).is_none_or(|wanted| wanted.timestamp_ms.is_none()) {
                cell.timestamp_ms = None;
            }
        }
        if expected == found {
            return Ok(());
        }
        let lines = |cells: &[GoldenCell]| -> String {
            cells
                .iter()
                .map(|c| {
                    let time = c.timestamp_ms.map(|t| t.to_string()).unwrap_or_default();
                    format!("\n    {} {} {} {} {time}", c.row, c.family, c.qualifier, c.value)
                })
                .collect::<Vec<_>>()
                .concat()
        };
        Err(format!("table {name}\n  expected{}\n  found{}", lines(&expected), lines(&found)))
    }
}

/// The table that a recording means: those of rollups have the names of the configuration.
fn table_of(name: &str) -> Table {
    Table::new(match name {
        "data" => "tsdb",
        "uid" => "tsdb-uid",
        "meta" => "tsdb-meta",
        "tree" => "tsdb-tree",
        rollups => rollups,
    })
}

/// Every cell of a table, in order.
async fn dump(storage: &dyn Storage, table: &Table) -> Vec<GoldenCell> {
    let mut scanner = storage.scan(table, Scan::default());
    let mut cells = Vec::new();
    while let Some(rows) = scanner.next_rows().await.expect("a scan") {
        for row in rows {
            let key = hex(&row.key);
            for cell in row.into_cells().expect("whole runs") {
                cells.push(GoldenCell {
                    row: key.clone(),
                    family: cell.family.as_str().to_owned(),
                    qualifier: hex(&cell.qualifier),
                    value: hex(&without_clock(&cell.value)),
                    timestamp_ms: Some(cell.timestamp_ms),
                });
            }
        }
    }
    cells
}

/// `RRRRRR` stands for the same three bytes in all places: those that `6D` (the metric `m`) got.
fn draw_random_uid(expected: &mut [GoldenCell], uids: &[GoldenCell]) {
    const DRAWN: &str = "RRRRRR";
    if !expected.iter().any(|cell| cell.value.contains(DRAWN) || cell.row.contains(DRAWN)) {
        return;
    }
    let mapping = uids.iter().find(|cell| cell.row == "6D" && cell.family == "id");
    let Some(drawn) = mapping.map(|cell| cell.value.as_str()) else { return };
    for cell in &mut *expected {
        cell.row = cell.row.replace(DRAWN, drawn);
        cell.value = cell.value.replace(DRAWN, drawn);
    }
    expected.sort();
}

/// Compares two answers byte for byte, as far as the recording goes.
fn same_text(expected: &str, found: &str) -> Result<(), String> {
    let same = match expected.strip_suffix("...") {
        Some(start) => found.starts_with(start),
        None => found == expected,
    };
    if same { Ok(()) } else { Err(format!("{found}\n  instead of\n    {expected}")) }
}

/// Compares two answers as JSON.
fn same_json(expected: &str, found: &str) -> Result<(), String> {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    if value(expected).is_some() && value(expected) == value(found) {
        return Ok(());
    }
    same_text(expected, found)
}

/// Compares two answers of a query as JSON; the series have no order.
fn same_query_reply(expected: &str, found: &str) -> Result<(), String> {
    if expected.ends_with("...") {
        return Ok(());
    }
    let series = |text: &str| -> Option<BTreeSet<String>> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(value.as_array()?.iter().map(canonical).collect())
    };
    if series(expected).is_some() && series(expected) == series(found) {
        return Ok(());
    }
    Err(format!("query answers\n    {found}\n  instead of\n    {expected}"))
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().map(|(k, v)| (k, canonical(v))).collect();
            format!("{sorted:?}")
        }
        Value::Array(values) => format!("{:?}", values.iter().map(canonical).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}

/// A value without the time at which a meta object was made, as it was recorded.
fn without_clock(value: &[u8]) -> Vec<u8> {
    const CREATED: &[u8] = b"\"created\":";
    let Some(at) = value.windows(CREATED.len()).position(|window| window == CREATED) else {
        return value.to_vec();
    };
    let (before, after) = value.split_at(at + CREATED.len());
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [before, b"0", &after[digits..]].concat()
}

fn unhex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0, "hexadecimal digits in pairs: {text}");
    (0..text.len())
        .step_by(2)
        .map(|i| {
            let pair = text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
            pair.unwrap_or_else(|| panic!("hexadecimal digits: {text}"))
        })
        .collect()
}
