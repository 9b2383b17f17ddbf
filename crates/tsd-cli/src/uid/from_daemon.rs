//! `tsdb uid` and `tsdb mkmetric` through the HTTP API of a daemon that has the embedded store open.
//!
//! The API has `grep`, lookups, `assign` and `rename`. It lacks `delete` and `fsck`, which change names that the
//! daemon caches, and run while the daemon is stopped.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tsd_engine::{StoredMapping, UidKind};
use tsd_model::{from_hex, to_hex};

use super::{
    command::{self, UidCommand, UidFlags},
    output::UidOutput,
    status::{FAILED, NOT_FOUND, USAGE},
};
use crate::{daemon_client::DaemonClient, percent_encoding::percent_encoded, tell};

/// Width of a UID that is given as a number, as in OpenTSDB. The API does not report the daemon's widths.
const DEFAULT_WIDTH: usize = 3;
/// OpenTSDB's text before the UID of an existing name.
const EXISTS: &str = "Name already exists with UID: ";

/// True if a daemon can execute the command.
pub(super) const fn is_possible(command: &UidCommand) -> bool {
    matches!(
        command,
        UidCommand::Grep { .. }
            | UidCommand::Assign { .. }
            | UidCommand::Rename { .. }
            | UidCommand::LookUp { .. }
    )
}

/// Executes a command; returns its exit status.
pub(super) async fn execute(
    daemon: &mut DaemonClient,
    command: &UidCommand,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> anyhow::Result<u8> {
    match command {
        UidCommand::Grep { kind, pattern } => grep(daemon, *kind, pattern, flags, out).await,
        UidCommand::Assign { kind, names } => assign(daemon, *kind, names, out).await,
        UidCommand::Rename { kind, old, new } => rename(daemon, *kind, old, new, out).await,
        UidCommand::LookUp { kind, word } => look_up(daemon, *kind, word, flags, out).await,
        _ => bail!("a daemon cannot run this command; stop the daemon first"),
    }
}

async fn grep(
    daemon: &mut DaemonClient,
    kind: Option<UidKind>,
    pattern: &str,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> anyhow::Result<u8> {
    let flagged = if flags.ignore_case { format!("(?i){pattern}") } else { pattern.to_owned() };
    if let Err(error) = tsd_query::compile_pattern(&flagged) {
        tell!("tsdb: {error}");
        return Ok(USAGE);
    }
    let mut any = false;
    let mut after: Option<String> = None;
    let mut list = out.list();
    let ended = loop {
        let parameters = [
            ("type", kind.map(UidKind::as_str)),
            ("match", Some(flagged.as_str())),
            ("after", after.as_deref()),
        ];
        let (mappings, next) = match listed(daemon, &parameters).await {
            Ok(page) => page,
            Err(error) => break Err(error),
        };
        any |= !mappings.is_empty();
        let is_read = mappings.iter().all(|mapping| list.add(mapping));
        if next.is_none() || !is_read {
            break Ok(());
        }
        after = next;
    };
    list.end();
    ended?;
    Ok(if any { 0 } else { NOT_FOUND })
}

async fn look_up(
    daemon: &mut DaemonClient,
    kind: Option<UidKind>,
    word: &str,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> anyhow::Result<u8> {
    let id = word.parse::<i64>().ok();
    let uid = id.map(|id| command::id_bytes(id, flags.id_width.unwrap_or(DEFAULT_WIDTH)));
    let uid = match uid.transpose() {
        Ok(uid) => uid.map(|uid| to_hex(&uid)),
        Err(too_large) => {
            tell!("{too_large}");
            return Ok(NOT_FOUND);
        }
    };
    let name = id.is_none().then_some(word);
    let parameters = [("type", kind.map(UidKind::as_str)), ("uid", uid.as_deref()), ("name", name)];
    let (found, _) = listed(daemon, &parameters).await?;
    Ok(out.found(&found, kind, word))
}

async fn assign(
    daemon: &mut DaemonClient,
    kind: UidKind,
    names: &[String],
    out: &mut UidOutput<'_>,
) -> anyhow::Result<u8> {
    let label = label(kind);
    let mut list = out.list();
    let mut ended = Ok(0);
    for name in names {
        match assign_one(daemon, label, name).await {
            Ok(Ok(uid)) => {
                let name = name.clone();
                list.add(&StoredMapping { kind, name, uid: uid.into(), is_counter: false });
            }
            Ok(Err(error)) => {
                tell!("tsdb: {error}");
                ended = Ok(FAILED);
                break;
            }
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    list.end();
    ended
}

/// The daemon assigns no UID to a name. The text is the daemon's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct RejectedNameError(String);

/// The UID of a name, assigned if the name is new; or why the name cannot get a UID.
async fn assign_one(
    daemon: &mut DaemonClient,
    label: &str,
    name: &str,
) -> anyhow::Result<Result<Vec<u8>, RejectedNameError>> {
    let body = json!({ label: [name] }).to_string();
    let response = daemon.post("/api/uid/assign", body).await?;
    let reply = response.json();
    match assigned(&reply, label, name) {
        Some(result) => Ok(result),
        None => bail!("{}: {}", daemon.authority(), response.error_text()),
    }
}

/// The result for a name in the response to an assignment.
fn assigned(reply: &Value, label: &str, name: &str) -> Option<Result<Vec<u8>, RejectedNameError>> {
    let uid = |hex: &str| from_hex(hex.trim().as_bytes());
    if let Some(hex) = reply.get(label).and_then(|map| map.get(name)).and_then(Value::as_str) {
        return Some(Ok(uid(hex)?));
    }
    let text = reply.get(format!("{label}_errors"))?.get(name)?.as_str()?;
    Some(match text.strip_prefix(EXISTS) {
        Some(hex) => Ok(uid(hex)?),
        None => Err(RejectedNameError(text.to_owned())),
    })
}

async fn rename(
    daemon: &mut DaemonClient,
    kind: UidKind,
    old: &str,
    new: &str,
    out: &mut UidOutput<'_>,
) -> anyhow::Result<u8> {
    let body = json!({ label(kind): old, "name": new }).to_string();
    let response = daemon.post("/api/uid/rename", body).await?;
    let reply = response.json();
    if reply.get("result").and_then(Value::as_str) == Some("true") {
        out.renamed(kind, old, new);
        return Ok(0);
    }
    match reply.get("error").and_then(Value::as_str) {
        Some(text) => {
            tell!("tsdb: {text}");
            Ok(if text.ends_with("does not exist") { NOT_FOUND } else { FAILED })
        }
        None => bail!("{}: {}", daemon.authority(), response.error_text()),
    }
}

/// Name of a kind in the API.
const fn label(kind: UidKind) -> &'static str {
    match kind {
        UidKind::Metric => "metric",
        _ => kind.as_str(),
    }
}

/// A page of `/api/uid/list`, and the start of the next page.
async fn listed(
    daemon: &mut DaemonClient,
    parameters: &[(&str, Option<&str>)],
) -> anyhow::Result<(Vec<StoredMapping>, Option<String>)> {
    let given = parameters
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", percent_encoded((*value)?))));
    let path = format!("/api/uid/list?{}", given.collect::<Vec<_>>().join("&"));
    let response = daemon.get(&path).await?;
    page(&daemon.json_of(&response)?).context("the response is not a list of names")
}

fn page(body: &Value) -> Option<(Vec<StoredMapping>, Option<String>)> {
    let mapping = |mapping: &Value| {
        Some(StoredMapping {
            kind: UidKind::from_name(mapping.get("type")?.as_str()?)?,
            name: mapping.get("name")?.as_str()?.to_owned(),
            uid: from_hex(mapping.get("uid")?.as_str()?.as_bytes())?.into(),
            is_counter: mapping.get("counter").and_then(Value::as_bool).unwrap_or_default(),
        })
    };
    let mappings = body.get("mappings")?.as_array()?.iter().map(mapping).collect::<Option<_>>()?;
    Some((mappings, body.get("next").and_then(Value::as_str).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_exists_has_its_uid() {
        let reply = json!({
            "metric": {"a": "000001"},
            "metric_errors": {"b": "Name already exists with UID: 000002", "c": "Invalid metric"},
        });
        assert_eq!(assigned(&reply, "metric", "a"), Some(Ok(vec![0, 0, 1])));
        assert_eq!(assigned(&reply, "metric", "b"), Some(Ok(vec![0, 0, 2])));
        assert_eq!(
            assigned(&reply, "metric", "c"),
            Some(Err(RejectedNameError("Invalid metric".to_owned())))
        );
        assert_eq!(assigned(&reply, "metric", "d"), None);
        assert_eq!(assigned(&Value::Null, "metric", "a"), None);
    }

    #[test]
    fn a_page_is_read_whole_or_not_at_all() {
        let body = json!({
            "mappings": [{"type": "tagk", "name": "host", "uid": "000001", "counter": false}],
            "next": "host",
        });
        let (mappings, next) = page(&body).unwrap_or_default();
        assert_eq!((mappings.len(), next.as_deref()), (1, Some("host")));
        assert!(page(&json!({"mappings": [{"type": "tagk"}]})).is_none());
        assert!(page(&json!([])).is_none());
    }
}
