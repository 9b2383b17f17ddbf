//! Sends a request to both and compares the responses.

use std::fmt;

use tsd_testkit::HttpResponse;

use crate::differential::{
    json::Json,
    request::Request,
    servers::{Servers, send},
};

/// Longest text of a response that is printed.
const SHOWN: usize = 700;

/// Two responses that differ.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) request: Request,
    pub(crate) theirs: HttpResponse,
    pub(crate) ours: HttpResponse,
    /// Engine of our daemon.
    pub(crate) engine: &'static str,
    /// Path to the first difference in the responses, with both values.
    pub(crate) at: String,
}

impl Difference {
    /// Key that differences with the same cause most likely share.
    pub(crate) fn kind(&self) -> String {
        let at: String = self.at.chars().filter(|c| !c.is_ascii_digit()).collect();
        let at = at.split(" theirs").next().unwrap_or_default().to_owned();
        let message = |response: &HttpResponse| {
            let body = Json::parse(&response.body)?;
            let message = body.get("error")?.get("message")?.to_string();
            Some(message.chars().filter(|c| !c.is_ascii_digit()).take(25).collect::<String>())
        };
        let (theirs, ours) = (message(&self.theirs), message(&self.ours));
        let (status, our_status) = (self.theirs.status, self.ours.status);
        format!("{} {status} {our_status} {at} {theirs:?} {ours:?}", self.request.path)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| match text.char_indices().nth(SHOWN) {
            Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
            None => text.to_owned(),
        };
        writeln!(f, "request {} ({})", self.request, self.engine)?;
        writeln!(f, "at      {}", shown(&self.at))?;
        for (name, response) in [("theirs", &self.theirs), ("ours  ", &self.ours)] {
            let body = response.body.split("\"trace\"").next().unwrap_or_default();
            writeln!(f, "{name}  {} {}", response.status, shown(body))?;
        }
        Ok(())
    }
}

/// The first difference between the responses of OpenTSDB and our daemons, if they differ. Each
/// daemon gets the request once.
pub(crate) fn compare(servers: &Servers, request: &Request) -> Option<Difference> {
    let mut theirs = send(servers.theirs, request);
    let mut found = None;
    for server in &servers.ours {
        let mut ours = send(server.address, request);
        // The UID table that an error names.
        ours.body = ours.body.replace("ours-uid", "tsdb-uid");
        if found.is_some() {
            continue;
        }
        let Some(mut at) = difference(request, &theirs, &ours) else { continue };
        // OpenTSDB may lose rows while it looks up uncached names, so a response that it does not
        // repeat does not count. Our daemon is asked once.
        if request.is_read {
            theirs = send(servers.theirs, request);
            let Some(again) = difference(request, &theirs, &ours) else { continue };
            at = again;
        }
        found = Some(Difference {
            request: request.clone(),
            theirs: theirs.clone(),
            ours,
            engine: server.name,
            at,
        });
    }
    found
}

fn difference(request: &Request, theirs: &HttpResponse, ours: &HttpResponse) -> Option<String> {
    // An error of the request is a 400, also where OpenTSDB fails with a 500. The message is the same.
    let is_request_error = (theirs.status, ours.status) == (500, 400);
    if theirs.status != ours.status && !is_request_error {
        return Some(format!("status theirs {} ours {}", theirs.status, ours.status));
    }
    let parsed = (Json::parse(&theirs.body), Json::parse(&ours.body));
    let (Some(mut their_json), Some(mut our_json)) = parsed else {
        let same = theirs.body == ours.body;
        return (!same).then(|| format!("body theirs {:?} ours {:?}", theirs.body, ours.body));
    };
    if is_request_error {
        their_json.change_members(&mut |name, value| {
            if name == "code" {
                *value = Json::Scalar("400".to_owned());
            }
        });
    }
    normalize(request, &mut their_json);
    normalize(request, &mut our_json);
    first_difference("", &their_json, &our_json)
}

/// Removes values that differ between two runs, and texts with documented differences.
fn normalize(request: &Request, body: &mut Json) {
    let is_error = body.get("error").is_some();
    let has_parser_text = body
        .get("error")
        .and_then(|error| error.get("message"))
        .is_some_and(|message| message.to_string() == "\"Unable to parse the given JSON\"");
    let is_lookup = request.path.contains("lookup");
    let is_last = request.path.ends_with("/last");
    let is_graph = request.path == "/q";
    body.change_members(&mut |name, value| match name {
        "details" if has_parser_text => *value = Json::Scalar("\"(parser)\"".to_owned()),
        "error" => value.remove("trace"),
        "time" if is_lookup => *value = Json::Scalar("0".to_owned()),
        "timing" if is_graph => *value = Json::Scalar("0".to_owned()),
        // Tag keys of each sub query, in no order.
        "etags" => sort_inner(value),
        // Time and size of each stage.
        "stats" | "statsSummary" => forget_numbers(value),
        _ => {}
    });
    if is_error {
        return;
    }
    // Values and names differ, the fields do not.
    if request.path.starts_with("/api/stats/") {
        keep_shape(body);
    }
    // In no order.
    if let (true, Json::List(points)) = (is_last, body) {
        points.sort_by_key(ToString::to_string);
    }
}

fn sort_inner(lists: &mut Json) {
    let Json::List(lists) = lists else { return };
    for list in lists {
        if let Json::List(elements) = list {
            elements.sort_by_key(ToString::to_string);
        }
    }
}

/// Keeps the first element of a list, and the kind of other values.
fn keep_shape(body: &mut Json) {
    match body {
        Json::Scalar(text) => {
            let kind = if text.starts_with('"') { "text" } else { "value" };
            kind.clone_into(text);
        }
        Json::List(elements) => {
            elements.truncate(1);
            elements.iter_mut().for_each(keep_shape);
        }
        Json::Object(members) => members.iter_mut().for_each(|(_, value)| keep_shape(value)),
    }
}

fn forget_numbers(value: &mut Json) {
    value.change_members(&mut |_, value| {
        if let Json::Scalar(text) = value {
            let is_integer = text.parse::<i64>().is_ok();
            (if is_integer { "n" } else { "x" }).clone_into(text);
        }
    });
}

fn first_difference(path: &str, theirs: &Json, ours: &Json) -> Option<String> {
    match (theirs, ours) {
        (Json::List(t), Json::List(o)) => {
            let inner = t.iter().zip(o).enumerate();
            let mut inner = inner;
            let inner =
                inner.find_map(|(at, (t, o))| first_difference(&format!("{path}[{at}]"), t, o));
            inner.or_else(|| {
                let same = t.len() == o.len();
                (!same).then(|| format!("{path}.length theirs {} ours {}", t.len(), o.len()))
            })
        }
        (Json::Object(t), Json::Object(o)) => {
            let names = |members: &[(String, Json)]| -> Vec<String> {
                members.iter().map(|(name, _)| name.clone()).collect()
            };
            let (their_names, our_names) = (names(t), names(o));
            // Points are ordered. The members of other objects have the order of a Java hash map or
            // of reflection, which may change with each start of OpenTSDB.
            if path.rsplit('.').next() == Some("dps") && their_names != our_names {
                let at = their_names.iter().zip(&our_names).position(|(t, o)| t != o);
                let at = at.unwrap_or(their_names.len().min(our_names.len()));
                let from =
                    |names: &[String]| names.iter().skip(at).take(3).cloned().collect::<Vec<_>>();
                let (their_names, our_names) = (from(&their_names), from(&our_names));
                return Some(format!("{path} times theirs {their_names:?} ours {our_names:?}"));
            }
            let without = |some: &[String], others: &[String]| -> Vec<String> {
                some.iter().filter(|name| !others.contains(name)).cloned().collect()
            };
            let missing = without(&their_names, &our_names);
            let more = without(&our_names, &their_names);
            if !missing.is_empty() || !more.is_empty() {
                return Some(format!("{path} keys missing {missing:?} more {more:?}"));
            }
            let ours_of = |name: &str| o.iter().find(|(own, _)| own == name);
            let inner = |at: usize, (name, value): &(String, Json)| {
                let in_order = o.get(at).filter(|(own, _)| own == name);
                let (_, own) = in_order.or_else(|| ours_of(name))?;
                first_difference(&format!("{path}.{name}"), value, own)
            };
            t.iter().enumerate().find_map(|(at, member)| inner(at, member))
        }
        _ if theirs == ours => None,
        _ => Some(format!("{path} theirs {theirs} ours {ours}")),
    }
}
