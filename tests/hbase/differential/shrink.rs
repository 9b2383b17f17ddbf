//! Shrinks a request that shows a difference.

use serde_json::Value;

use crate::differential::{
    compare::{Difference, compare},
    known::KnownDifferences,
    request::{Body, Request},
    servers::Servers,
};

/// Most requests to try.
const MAX_ATTEMPTS: usize = 150;

/// The smallest request found that shows the same kind of difference. Requests that write are returned as
/// they are.
pub(crate) fn shrink(
    servers: &Servers,
    known: &KnownDifferences,
    difference: Difference,
) -> Difference {
    let mut smallest = difference;
    if !smallest.request.is_read {
        return smallest;
    }
    let mut attempts = 0;
    loop {
        let mut smaller = None;
        for candidate in candidates(&smallest.request) {
            attempts += 1;
            if attempts > MAX_ATTEMPTS {
                return smallest;
            }
            smaller = compare(servers, &candidate)
                .filter(|found| found.kind() == smallest.kind() && known.find(found).is_none());
            if smaller.is_some() {
                break;
            }
        }
        match smaller {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
}

/// Members that a request keeps: without an end, a fill policy fills until now.
const KEPT: &[&str] = &["start", "end", "time"];

/// Requests without one of the parts.
fn candidates(request: &Request) -> Vec<Request> {
    let mut found = Vec::new();
    for at in 0..request.parameters.len() {
        let (name, value) = &request.parameters[at];
        if !KEPT.contains(&name.as_str()) {
            let mut fewer = request.clone();
            fewer.parameters.remove(at);
            found.push(fewer);
        }
        for shorter in value.iter().flat_map(|value| shorter_texts(value)) {
            let mut fewer = request.clone();
            fewer.parameters[at].1 = Some(shorter);
            found.push(fewer);
        }
    }
    if let Some(Body::Json(body)) = &request.body {
        for smaller in smaller_values(body) {
            found.push(Request { body: Some(Body::Json(smaller)), ..request.clone() });
        }
    }
    found
}

/// A sub query of a URI without one of its parts, or without filters.
fn shorter_texts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parts: Vec<&str> = text.split(':').collect();
    for at in 1..parts.len().saturating_sub(1) {
        let kept: Vec<&str> =
            parts.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, part)| *part).collect();
        found.push(kept.join(":"));
    }
    if let Some(brace) = text.rfind('{').filter(|_| text.ends_with('}')) {
        found.extend(text.get(..brace).map(str::to_owned));
    }
    found
}

fn smaller_values(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    match value {
        Value::Array(elements) => {
            for at in 0..elements.len() {
                let mut fewer = elements.clone();
                fewer.remove(at);
                found.push(Value::Array(fewer));
            }
            for (at, element) in elements.iter().enumerate() {
                for smaller in smaller_values(element) {
                    let mut changed = elements.clone();
                    changed[at] = smaller;
                    found.push(Value::Array(changed));
                }
            }
        }
        Value::Object(members) => {
            for name in members.keys().filter(|name| !KEPT.contains(&name.as_str())) {
                let mut fewer = members.clone();
                fewer.shift_remove(name);
                found.push(Value::Object(fewer));
            }
            for (name, member) in members {
                for smaller in smaller_values(member) {
                    let mut changed = members.clone();
                    changed.insert(name.clone(), smaller);
                    found.push(Value::Object(changed));
                }
            }
        }
        _ => {}
    }
    found
}
