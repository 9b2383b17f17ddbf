//! Compares a result with the recorded one.

use serde_json::Value as Json;
use tsd_protocol::ApiError;

pub(crate) fn check(case: &Json, got: &Result<Json, ApiError>) -> Result<(), String> {
    match (case.get("expect_error"), got) {
        (None, Ok(got)) => same(&case["expect"], got, ""),
        (None, Err(e)) => Err(format!("failed: {e}")),
        (Some(expected), Ok(got)) => Err(format!("{expected} expected, got {got}")),
        (Some(expected), Err(e)) => {
            let message = expected["message"].as_str().unwrap();
            let same_text = if expected["match"] == "exact" {
                e.message == message
            } else {
                e.message.contains(message)
            };
            // An error of the request is a 400, also where OpenTSDB failed with a 500.
            let is_users = e.status == 400 && expected["status"] == 500;
            if same_text && (is_users || expected["status"] == e.status) {
                Ok(())
            } else {
                Err(format!("{expected} expected, got {} {e}", e.status))
            }
        }
    }
}

/// Equal apart from the order of object keys; doubles are equal to the last bit and distinct from
/// integers.
fn same(expected: &Json, got: &Json, path: &str) -> Result<(), String> {
    let differ = || Err(format!("at {path}: expected {expected}, got {got}"));
    match (expected, got) {
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .try_for_each(|(i, (a, b))| same(a, b, &format!("{path}/{i}"))),
        (Json::Object(a), Json::Object(b)) if a.len() == b.len() => {
            a.iter().try_for_each(|(key, a)| match b.get(key) {
                Some(b) => same(a, b, &format!("{path}/{key}")),
                None => differ(),
            })
        }
        (Json::Number(a), Json::Number(b)) if a.is_f64() && b.is_f64() => {
            if a.as_f64().map(f64::to_bits) == b.as_f64().map(f64::to_bits) {
                Ok(())
            } else {
                differ()
            }
        }
        _ if expected == got => Ok(()),
        _ => differ(),
    }
}
