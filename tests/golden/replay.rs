//! Replays the steps of a case against a daemon in this process and compares its tables.
//!
//! Raw cells are planted in and read from the daemon's store directly; everything else uses its
//! socket.

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
use tsd_cli::{ImportOptions, Node, import, uid};
use tsd_engine::{Engine, MetaTracking};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Scan, Storage, StorageExt, Table};
use tsd_testkit::{PATIENCE, exchange, http};

use super::{
    case::{GoldenCase, GoldenCell, GoldenStep, Tables, hex},
    fsck,
};
use crate::in_process;

/// Store of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoldenStore {
    Memory,
    Embedded,
}

/// Replays one case; the error names the difference.
pub(crate) fn replay(case: &GoldenCase, store: GoldenStore) -> Result<(), String> {
    let mut replay = match Replay::start(case, store) {
        Ok(_) if case.fails_to_start => return Err("the daemon started".to_owned()),
        Err(_) if case.fails_to_start => return Ok(()),
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
    /// Planted cells so far. They are older than all cells of the daemon, each newer than the last.
    planted: i64,
}

impl Replay {
    fn start(case: &GoldenCase, store: GoldenStore) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("temporary directory");
        let engine = if store == GoldenStore::Memory { "memory" } else { "embedded" };
        let mut settings = vec![
            ("tsd.storage.engine", engine),
            // Settings of the recorded OpenTSDB that differ from our defaults.
            ("tsd.storage.salt.width", "0"),
            ("tsd.storage.fix_duplicates", "false"),
            ("tsd.storage.compaction.min_flush_threshold", "1000000"),
        ];
        if store == GoldenStore::Embedded {
            // Merges compact rows of this store when they are flushed. With this setting the row compactor
            // does too.
            settings.push(("tsd.storage.repair_appends", "true"));
        }
        settings.extend(case.config.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let runtime = Runtime::new().expect("runtime");
        let node = in_process::start(&runtime, directory.path(), &settings)?;
        Ok(Self { runtime, node, directory, planted: 0 })
    }

    fn stop(self) {
        in_process::stop(&self.runtime, self.node);
    }

    fn step(&mut self, step: &GoldenStep) -> Result<(), String> {
        match step {
            GoldenStep::Telnet { line, reply } => self.telnet(line, reply.as_deref()),
            GoldenStep::Http { method, uri, body, status, reply } => {
                let response = http(self.node.address(), method, uri, body.as_deref());
                // Where OpenTSDB failed with 500, any error of the request is accepted.
                let accepted = match status {
                    500 => (400..500).contains(&response.status),
                    status => response.status == *status,
                };
                if !accepted {
                    return Err(format!("{uri}: {} {}", response.status, response.body));
                }
                // A step starts when the writes of the previous one are stored.
                self.runtime.block_on(self.node.engine().compactions_idle());
                match status {
                    200 if uri.starts_with("/api/query") => same_query_reply(reply, &response.body),
                    // Responses about annotations are compared as bytes, those about points as JSON.
                    200 | 400 if uri.starts_with("/api/uid/rename") => {
                        same_text(reply, &response.body)
                    }
                    200 if uri.starts_with("/api/annotation") => same_text(reply, &response.body),
                    _ if is_meta_object(uri) => same_meta_reply(reply, &response.body),
                    // The order of the fields of a rule is not fixed.
                    _ if uri.starts_with("/api/tree") => {
                        same_json(reply, &as_recorded(&response.body))
                    }
                    200 | 400
                        if uri.starts_with("/api/rollup") || uri.starts_with("/api/histogram") =>
                    {
                        same_json(reply, &response.body)
                    }
                    _ => Ok(()),
                }
            }
            GoldenStep::Plant(cells) => {
                self.plant(cells);
                Ok(())
            }
            GoldenStep::Wait { ms } => {
                // The recorder waited for the next millisecond (60, 100) or for background work (9 000),
                // which runs every second.
                thread::sleep(Duration::from_millis(if *ms > 1_000 { 2_500 } else { 5 }));
                self.runtime.block_on(self.node.engine().drain_tracking());
                Ok(())
            }
            GoldenStep::Tables(tables) => self.compare(tables),
            GoldenStep::Tool { arguments, file, config, exit, output } => {
                match arguments.split_first() {
                    Some((tool, words)) if tool == "uid" => self.uid(words, config, *exit, output),
                    Some((tool, flags)) if tool == "fsck" => {
                        fsck::check(&self.runtime, self.node.engine(), flags, *exit, output)
                    }
                    _ => self.import(arguments, file, *exit),
                }
            }
        }
    }

    /// Sends one line and reads until the daemon, its points stored, closes.
    fn telnet(&self, line: &str, reply: Option<&str>) -> Result<(), String> {
        let response = exchange(self.node.address(), format!("{line}\n").as_bytes());
        let response = response.strip_suffix(b"\n").unwrap_or(&response);
        let latin_1: String = response.iter().copied().map(char::from).collect();
        let reply = reply.unwrap_or_default();
        if reply != latin_1 && reply.as_bytes() != response {
            return Err(format!("telnet {line:?}: {latin_1:?} instead of {reply:?}"));
        }
        Ok(())
    }

    /// Runs the importer on the daemon's store, which only one process can open.
    fn import(&self, arguments: &[String], file: &[String], exit: i64) -> Result<(), String> {
        let [tool, flags @ ..] = arguments else { return Err("no tool".to_owned()) };
        let supported = ["--skip-errors", "--auto-metric"];
        if tool != "import" || flags.iter().any(|flag| !supported.contains(&flag.as_str())) {
            return Err(format!("{arguments:?} cannot be replayed"));
        }
        let has = |name| flags.iter().any(|flag| flag == name);
        let path = self.directory.path().join("points");
        fs::write(&path, file.join("\n")).expect("write");
        let options = ImportOptions {
            skip_errors: has("--skip-errors"),
            as_opentsdb: true,
            ..Default::default()
        };
        let mut settings = self.node.engine().config().clone();
        settings.uids.auto_create_metrics |= has("--auto-metric");
        settings.meta_tracking = MetaTracking::Off;
        // A new process would not have cached UIDs.
        let engine = Engine::start(settings, Arc::clone(self.node.storage())).expect("an engine");
        let done = self.runtime.block_on(import(&engine, &[path], options));
        self.node.engine().drop_caches();
        if done.is_ok() != (exit == 0) {
            return Err(format!("import: {done:?}"));
        }
        Ok(())
    }

    /// Runs `tsdb uid` on the daemon's store, like a separate process.
    fn uid(
        &self,
        words: &[String],
        config: &BTreeMap<String, String>,
        exit: i64,
        output: &[String],
    ) -> Result<(), String> {
        let mut settings = self.node.engine().config().clone();
        settings.meta_tracking = MetaTracking::Off;
        let processing = config.get("tsd.core.tree.enable_processing");
        settings.tree_processing |= processing.is_some_and(|value| value == "true");
        let engine = Engine::start(settings, Arc::clone(self.node.storage())).expect("an engine");
        let mut printed = Vec::new();
        let status = self.runtime.block_on(uid(&engine, words, &mut printed));
        self.node.engine().drop_caches();
        let printed = String::from_utf8(printed).expect("text");
        let lines: Vec<String> = printed.lines().map(fsck::without_times).collect();
        // Warnings are on standard error, except for fsck.
        let is_fsck = words.first().is_some_and(|word| word == "fsck");
        let output: Vec<&String> =
            output.iter().filter(|line| is_fsck || !line.starts_with("WARN ")).collect();
        if i64::from(status) != exit || lines.iter().ne(output.iter().copied()) {
            return Err(format!(
                "uid {words:?}: {status} {lines:#?}\n  instead of {exit} {output:#?}"
            ));
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
        let response = http(self.node.address(), "GET", "/api/dropcaches", None);
        assert_eq!(response.status, 200, "{}", response.body);
    }

    fn dump(&self, table: &Table) -> Vec<GoldenCell> {
        self.runtime.block_on(dump(&**self.node.storage(), table))
    }

    /// Compares tables, repeatedly until they are equal because background work may still run.
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
        replace_random_uid(&mut expected, &self.dump(&table_of("uid")));
        expected.iter_mut().chain(&mut found).for_each(sort_fields_of_rule);
        for (i, cell) in found.iter_mut().enumerate() {
            if expected.get(i).is_none_or(|cell| cell.timestamp_ms.is_none()) {
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

/// The table of a recorded name; tables of rollups have the names of the configuration.
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

/// Sorts the fields of a rule: their order changes from one process of OpenTSDB to the next.
fn sort_fields_of_rule(cell: &mut GoldenCell) {
    if cell.qualifier.starts_with(&hex(b"tree_rule:")) {
        let rule: BTreeMap<String, Value> =
            serde_json::from_slice(&unhex(&cell.value)).expect("a rule");
        cell.value = hex(&serde_json::to_vec(&rule).expect("JSON"));
    }
}

/// Replaces `RRRRRR` by the UID assigned to `6D` (the metric `m`).
fn replace_random_uid(expected: &mut [GoldenCell], uids: &[GoldenCell]) {
    const PLACEHOLDER: &str = "RRRRRR";
    if !expected
        .iter()
        .any(|cell| cell.value.contains(PLACEHOLDER) || cell.row.contains(PLACEHOLDER))
    {
        return;
    }
    let mapping = uids.iter().find(|cell| cell.row == "6D" && cell.family == "id");
    let Some(uid) = mapping.map(|cell| cell.value.as_str()) else { return };
    for cell in &mut *expected {
        cell.row = cell.row.replace(PLACEHOLDER, uid);
        cell.value = cell.value.replace(PLACEHOLDER, uid);
    }
    expected.sort();
}

/// Compares two responses as bytes; a recorded response may end in `...`.
fn same_text(expected: &str, found: &str) -> Result<(), String> {
    let same = match expected.strip_suffix("...") {
        Some(start) => found.starts_with(start),
        None => found == expected,
    };
    if same { Ok(()) } else { Err(format!("{found}\n  instead of\n    {expected}")) }
}

/// True if the response to a request is a meta object, or the reason why the object is missing.
fn is_meta_object(uri: &str) -> bool {
    uri.starts_with("/api/uid/uidmeta") || uri.starts_with("/api/uid/tsmeta")
}

/// Compares two responses with meta objects as bytes, without times, and without the trace of an error.
fn same_meta_reply(expected: &str, found: &str) -> Result<(), String> {
    same_text(expected, &as_recorded(found))
}

/// A response without times, and without the trace of an error.
fn as_recorded(found: &str) -> String {
    let without_trace = found.split_once(r#","trace":"#).map(|(start, _)| format!("{start}}}}}"));
    let found = without_trace.unwrap_or_else(|| found.to_owned());
    without_number(&without_number(&found, "created"), "lastReceived")
}

/// A text with the number of each field of this name replaced by 0, as recorded.
fn without_number(text: &str, field: &str) -> String {
    let key = format!("\"{field}\":");
    let mut parts = text.split(&key);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out = out + &key + "0" + part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

/// Compares two responses as JSON.
fn same_json(expected: &str, found: &str) -> Result<(), String> {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    if value(expected).is_some() && value(expected) == value(found) {
        return Ok(());
    }
    same_text(expected, found)
}

/// Compares two query results as JSON, ignoring the order of series.
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
    Err(format!("query result\n    {found}\n  instead of\n    {expected}"))
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

/// A value with the creation time of a meta object replaced by 0, as recorded.
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
