//! Parses recorded cases: settings, steps, and the tables after them.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;

/// A recorded case.
pub(crate) struct GoldenCase {
    pub(crate) topic: &'static str,
    pub(crate) name: String,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) steps: Vec<GoldenStep>,
    pub(crate) tables: Tables,
    /// True if a daemon does not start with these settings.
    pub(crate) fails_to_start: bool,
}

/// Table name to its cells, in order.
pub(crate) type Tables = BTreeMap<String, Vec<GoldenCell>>;

/// A cell in upper-case hexadecimal, with its timestamp where the case pins it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GoldenCell {
    pub(crate) row: String,
    pub(crate) family: String,
    pub(crate) qualifier: String,
    pub(crate) value: String,
    pub(crate) timestamp_ms: Option<i64>,
}

/// A step of a case.
pub(crate) enum GoldenStep {
    Telnet {
        line: String,
        reply: Option<String>,
    },
    Http {
        method: String,
        uri: String,
        body: Option<String>,
        status: u16,
        reply: String,
    },
    Plant(Vec<(String, GoldenCell)>),
    Wait {
        ms: u64,
    },
    Tables(Tables),
    /// A command-line tool.
    Tool {
        arguments: Vec<String>,
        file: Vec<String>,
        /// Settings that override the settings of the case.
        config: BTreeMap<String, String>,
        exit: i64,
        /// Lines of its log with their level, and its output, without counters that are 0.
        output: Vec<String>,
    },
}

/// Topics of the recording, a file each.
pub(crate) const TOPICS: [&str; 13] = [
    "annotations",
    "appends",
    "compaction",
    "fsck",
    "histograms",
    "imports",
    "meta",
    "points",
    "rollups",
    "salted",
    "tree",
    "uid",
    "uidfsck",
];

/// All cases of a topic.
pub(crate) fn load(topic: &'static str) -> Vec<GoldenCase> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/golden")
        .join(format!("{topic}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cases: Vec<Value> = serde_json::from_str(&text).expect("an array of cases");
    cases.iter().map(|case| GoldenCase::parse(topic, case)).collect()
}

impl GoldenCase {
    fn parse(topic: &'static str, case: &Value) -> Self {
        Self {
            topic,
            name: string(&case["name"]),
            config: settings(&case["config"]),
            steps: array(&case["steps"]).map(GoldenStep::parse).collect(),
            tables: tables(&case["tables"]),
            fails_to_start: false,
        }
    }
}

impl GoldenStep {
    fn parse(step: &Value) -> Self {
        let reply = step.get("reply").map(string);
        if let Some(line) = step.get("telnet") {
            Self::Telnet { line: string(line), reply }
        } else if let Some(http) = step.get("http") {
            Self::Http {
                method: string(&http["method"]),
                uri: string(&http["uri"]),
                body: http.get("body").map(string),
                status: step["status"].as_u64().and_then(|s| s.try_into().ok()).expect("a status"),
                reply: reply.unwrap_or_default(),
            }
        } else if let Some(cells) = step.get("plant") {
            let cells = array(cells).map(|cell| {
                let (table, rest) =
                    cell.as_array().and_then(|c| c.split_first()).expect("a planted cell");
                (string(table), GoldenCell::parse(rest))
            });
            Self::Plant(cells.collect())
        } else if let Some(ms) = step.get("wait_ms") {
            Self::Wait { ms: ms.as_u64().expect("milliseconds") }
        } else if let Some(at_this_point) = step.get("tables") {
            Self::Tables(tables(at_this_point))
        } else {
            let words = step.get("cli").unwrap_or_else(|| panic!("unknown step {step}"));
            let lines = step.get("file").map(|lines| array(lines).map(string).collect());
            Self::Tool {
                arguments: array(words).map(string).collect(),
                file: lines.unwrap_or_default(),
                config: step.get("config").map(settings).unwrap_or_default(),
                exit: step["exit"].as_i64().expect("an exit status"),
                output: array(&step["output"]).map(string).collect(),
            }
        }
    }
}

impl GoldenCell {
    fn parse(cell: &[Value]) -> Self {
        let field = |i: usize| string(cell.get(i).expect("four fields"));
        Self {
            row: field(0),
            family: field(1),
            qualifier: field(2),
            value: match field(3).strip_prefix("text:") {
                Some(text) => hex(text.as_bytes()),
                None => field(3),
            },
            timestamp_ms: cell.get(4).and_then(Value::as_i64),
        }
    }
}

/// Upper-case hexadecimal, as in the recording.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().concat()
}

fn settings(config: &Value) -> BTreeMap<String, String> {
    object(config).map(|(key, value)| (key.clone(), string(value))).collect()
}

fn tables(tables: &Value) -> Tables {
    object(tables)
        .map(|(name, cells)| {
            let cells =
                array(cells).map(|cell| GoldenCell::parse(cell.as_array().expect("a cell")));
            (name.clone(), cells.collect())
        })
        .collect()
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().expect("an object").iter()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("an array").iter()
}

fn string(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
