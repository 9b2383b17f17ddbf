//! `tsdb config`: checks a configuration file, lists the keys, and prints an example, without starting anything.

mod example;

use std::{fmt::Write as _, process::ExitCode};

use serde_json::{Value, json};

use crate::{
    args::{ConfigCheckArgs, ConfigCommand},
    config::{CheckedEntry, ConfigError, FileCheck, KeyEffect, KeyVerdict, check_file, keys},
    print_lines, tell,
};

/// Exit status if the file cannot be read.
const UNREADABLE: u8 = 2;

/// Runs the command. The exit status of a check is 1 if it finds an error.
pub(crate) fn main(command: &ConfigCommand) -> ExitCode {
    match command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::List(args) => {
            print(&if args.json { keys_as_json() } else { keys_as_text() }, ExitCode::SUCCESS)
        }
        ConfigCommand::Example(args) => {
            print(&example::text(args.data.as_deref()), ExitCode::SUCCESS)
        }
    }
}

/// Prints the result. Returns `status`, or 1 if the result cannot be written.
fn print(text: &str, status: ExitCode) -> ExitCode {
    match print_lines(text) {
        Ok(()) => status,
        Err(error) => {
            tell!("tsdb: {error}");
            ExitCode::from(1)
        }
    }
}

fn check(args: &ConfigCheckArgs) -> ExitCode {
    let checked = std::fs::read(&args.file)
        .map_err(|source| ConfigError::Unreadable { path: args.file.clone(), source })
        .and_then(|text| check_file(&args.file, &text));
    match checked {
        Ok(checked) => {
            let text = if args.json { as_json(args, &checked) } else { as_text(&checked) };
            print(&text, ExitCode::from(u8::from(errors(args, &checked) > 0)))
        }
        Err(error) => {
            let status = match error {
                ConfigError::Unreadable { .. } => UNREADABLE,
                _ => 1,
            };
            tell!("tsdb: {:#}", anyhow::Error::new(error));
            ExitCode::from(status)
        }
    }
}

fn errors(args: &ConfigCheckArgs, checked: &FileCheck) -> usize {
    let unknown = if args.strict { checked.count("unknown") } else { 0 };
    checked.count("wrong") + checked.problems.len() + unknown
}

/// `line N: KEY = VALUE: verdict`, and a line with the totals.
fn as_text(checked: &FileCheck) -> String {
    let mut out = String::new();
    for CheckedEntry { key, value, line, verdict } in &checked.entries {
        let word = verdict.word();
        let _ = write!(out, "line {line}: {key} = {value}: {word}");
        let _ = match verdict {
            KeyVerdict::Honoured { effective, note } => {
                let as_value =
                    if effective == value { String::new() } else { format!(" as {effective:?}") };
                let note = note.as_deref().map_or_else(String::new, |note| format!(" ({note})"));
                writeln!(out, "{as_value}{note}")
            }
            KeyVerdict::Ignored { why } | KeyVerdict::Wrong { why } => writeln!(out, ": {why}"),
            KeyVerdict::Unknown { nearest: Some(nearest) } => {
                writeln!(out, "; the nearest key is {nearest}")
            }
            KeyVerdict::Unknown { nearest: None } => writeln!(out, "; no key has a similar name"),
        };
    }
    for line in &checked.hbase {
        let _ = writeln!(out, "{line}");
    }
    for problem in &checked.problems {
        let _ = writeln!(out, "wrong: {problem}");
    }
    for warning in &checked.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    let counts = ["honoured", "ignored", "unknown", "wrong"]
        .map(|word| format!("{} {word}", checked.count(word)));
    let _ = writeln!(out, "{} keys: {}", checked.entries.len(), counts.join(", "));
    out
}

fn as_json(args: &ConfigCheckArgs, checked: &FileCheck) -> String {
    let entry = |CheckedEntry { key, value, line, verdict }: &CheckedEntry| {
        let mut fields = vec![
            ("line", json!(line)),
            ("key", json!(key)),
            ("value", json!(value)),
            ("verdict", json!(verdict.word())),
        ];
        match verdict {
            KeyVerdict::Honoured { effective, note } => {
                fields.push(("effective", json!(effective)));
                fields.extend(note.as_ref().map(|note| ("note", json!(note))));
            }
            KeyVerdict::Ignored { why } | KeyVerdict::Wrong { why } => {
                fields.push(("reason", json!(why)));
            }
            KeyVerdict::Unknown { nearest } => fields.push(("nearest", json!(nearest))),
        }
        fields.into_iter().collect::<Value>()
    };
    let value = json!({
        "file": args.file.display().to_string(),
        "keys": checked.entries.iter().map(entry).collect::<Vec<_>>(),
        "problems": checked.problems,
        "warnings": checked.warnings,
        "hbase": checked.hbase,
        "errors": errors(args, checked),
    });
    format!("{value:#}\n")
}

/// Two lines per key: `KEY = DEFAULT`, and its meaning with its values or the reason why it has no effect.
fn keys_as_text() -> String {
    let mut out = String::new();
    for key in keys::KEYS {
        let (default, meaning) = (key.default.unwrap_or_default(), key.meaning);
        let _ = writeln!(out, "{} = {default}", key.name);
        let _ = match key.effect {
            KeyEffect::Applied(_) => writeln!(out, "    {meaning} [{}]", key.values()),
            KeyEffect::None(reason) => writeln!(out, "    {meaning}; ignored: {reason}"),
        };
    }
    out
}

fn keys_as_json() -> String {
    let keys: Vec<Value> = keys::KEYS
        .iter()
        .map(|key| {
            let reason = match key.effect {
                KeyEffect::Applied(_) => None,
                KeyEffect::None(reason) => Some(reason),
            };
            json!({
                "key": key.name,
                "default": key.default,
                "type": key.values(),
                "meaning": key.meaning,
                "applied": key.is_applied(),
                "reason": reason,
                "environment": key.environment_variable(),
            })
        })
        .collect();
    format!("{:#}\n", json!(keys))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::path::{Path, PathBuf};

    use super::*;

    fn checked() -> FileCheck {
        let text = b"tsd.network.port = 4243\ntsd.core.auto_create_metrics = Yes\n\
                     tsd.http.cachedir = /tmp\ntsd.network.prot = 1\ntsd.mode = x\n";
        check_file(Path::new("f"), text).unwrap()
    }

    #[test]
    fn verdicts_are_lines_and_totals() {
        assert_eq!(
            as_text(&checked()),
            "line 1: tsd.network.port = 4243: honoured\n\
             line 2: tsd.core.auto_create_metrics = Yes: honoured as \"true\"\n\
             line 3: tsd.http.cachedir = /tmp: ignored: no files of graphs are kept\n\
             line 4: tsd.network.prot = 1: unknown; the nearest key is tsd.network.port\n\
             line 5: tsd.mode = x: wrong: expected one of rw, ro, wo\n\
             5 keys: 2 honoured, 1 ignored, 1 unknown, 1 wrong\n"
        );
    }

    #[test]
    fn unknown_keys_are_errors_if_strict() {
        let json = |strict| -> Value {
            let args = ConfigCheckArgs { strict, json: true, file: PathBuf::from("f") };
            serde_json::from_str(&as_json(&args, &checked())).unwrap()
        };
        let value = json(false);
        assert_eq!(value["errors"], 1);
        assert_eq!(value["keys"][1]["effective"], "true");
        assert_eq!(value["keys"][3]["nearest"], "tsd.network.port");
        assert_eq!(value["keys"][4]["verdict"], "wrong");
        assert_eq!(json(true)["errors"], 2);
    }

    #[test]
    fn the_way_to_hbase_follows_the_verdicts() {
        let text = b"tsd.storage.hbase.zk_quorum = zk1\nhbase.rpc.protection = privacy\n";
        let checked = check_file(Path::new("f"), text).unwrap();
        let shown = as_text(&checked);
        let after = "line 2: hbase.rpc.protection = privacy: honoured\n\
                     HBase: through ZooKeeper at zk1, root znode /hbase\nauthentication: none";
        assert!(shown.contains(after), "{shown}");
        let args = ConfigCheckArgs { strict: false, json: true, file: PathBuf::from("f") };
        let json: Value = serde_json::from_str(&as_json(&args, &checked)).unwrap();
        assert_eq!(json["hbase"][0], "HBase: through ZooKeeper at zk1, root znode /hbase");
    }

    #[test]
    fn every_key_is_listed() {
        let text = keys_as_text();
        let json: Value = serde_json::from_str(&keys_as_json()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), keys::KEYS.len());
        assert_eq!(text.lines().count(), 2 * keys::KEYS.len());
        assert!(
            text.contains("tsd.mode = rw\n    rw: queries and puts; ro: queries only; wo: puts only [rw, ro, wo]\n")
        );
    }
}
