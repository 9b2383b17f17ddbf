//! Generates `docs/compatibility.md`: the features of OpenTSDB from `tests/data/compatibility.tsv`, each with
//! its state in this program. The test asks the program for the state: a running daemon for endpoints, telnet
//! commands and statistics, the command line for commands and options, the list of keys for keys. An absent
//! feature needs a reason in the data. Rows of `docs/differences.md` that the data names must exist.
//!
//! `UPDATE_DOCS=1 cargo test --test main compatibility_doc` writes the page.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use tsd_cli::config::keys;
use tsd_testkit::{exchange, http};

use crate::{TSDB, tsdb};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/compatibility.md");
const DATA: &str = include_str!("data/compatibility.tsv");
const DIFFERENCES: &str = include_str!("../docs/differences.md");

/// Sections of the page, by the kind of their entries.
const SECTIONS: [(&str, &str, &str); 7] = [
    ("http", "HTTP endpoints", "Each was requested from a daemon, and its answer compared."),
    ("telnet", "Telnet commands", "Each was sent to a daemon."),
    ("command", "Commands", "As `tsdb help` has them."),
    ("subcommand", "Sub-commands", "As `tsdb help COMMAND` has them."),
    ("flag", "Options", "Each was given to its command."),
    ("key", "Configuration keys", "As the program's own list has them."),
    ("statistic", "Statistics", "As telnet `stats` has them, with `tsd.core.stats_with_port` off."),
];

/// Settings of the daemon, which also enable features that OpenTSDB has off by default.
const SETTINGS: &str = "\
tsd.http.query.allow_delete = true
tsd.core.meta.enable_realtime_ts = true
tsd.core.meta.enable_realtime_uid = true
tsd.core.meta.enable_tsuid_tracking = true
tsd.core.tree.enable_processing = true
tsd.rollups.enable = true
tsd.rollups.config = {\"aggregationIds\":{\"sum\":0,\"count\":1},\"intervals\":[{\"table\":\"tsdb\",\"preAggregationTable\":\"tsdb\",\"interval\":\"1m\",\"rowSpan\":\"1h\",\"defaultInterval\":true},{\"table\":\"tsdb-rollup-1h\",\"preAggregationTable\":\"tsdb-rollup-1h\",\"interval\":\"1h\",\"rowSpan\":\"1d\"}]}
tsd.core.histograms.config = {\"net.opentsdb.core.SimpleHistogramDecoder\": 0}
tsd.uidfilter.enable = true
tsd.uidfilter.whitelist.metric_patterns = .
tsd.rtpublisher.enable = true
tsd.rtpublisher.plugin = file
tsd.core.storage_exception_handler.enable = true
tsd.core.storage_exception_handler.plugin = spool
";

/// A feature of OpenTSDB.
#[derive(Clone, Copy, Debug)]
struct Offer {
    kind: &'static str,
    name: &'static str,
    /// The request that probes the feature.
    probe: &'static str,
    /// Text that the answer must contain.
    expected: &'static str,
    /// Start of the feature's row in `docs/differences.md`; empty without a difference.
    difference: &'static str,
    /// Reason of its absence; empty for a present feature.
    reason: &'static str,
}

/// State of a feature in this program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OfferState {
    Present,
    /// Absent, with the observed answer.
    Absent(String),
    /// A key that is accepted without effect.
    WithoutEffect,
}

fn offers() -> Vec<Offer> {
    let lines = DATA.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().unwrap_or_default();
            let offer = Offer {
                kind: next(),
                name: next(),
                probe: next(),
                expected: next(),
                difference: next(),
                reason: next(),
            };
            assert!(fields.next().is_none() && !offer.name.is_empty(), "{line}");
            offer
        })
        .collect()
}

/// Requests an endpoint: `METHOD URI [BODY]`; the answer must begin with the status and have the text.
fn ask_endpoint(address: SocketAddr, offer: &Offer) -> OfferState {
    let mut words = offer.probe.splitn(3, ' ');
    let method = words.next().expect("a method");
    let uri = words.next().expect("a URI");
    let answer = http(address, method, uri, words.next());
    let (status, text) = offer.expected.split_once(' ').unwrap_or((offer.expected, ""));
    if answer.status.to_string() == status && answer.body.contains(text) {
        return OfferState::Present;
    }
    OfferState::Absent(format!("{} {}", answer.status, answer.body))
}

/// Sends a line to the daemon; without an expected text there must be no reply.
fn ask_telnet(address: SocketAddr, offer: &Offer) -> OfferState {
    let reply = exchange(address, format!("{}\n", offer.probe).as_bytes());
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let is_present = match offer.expected {
        "" => reply.is_empty(),
        text => reply.contains(text),
    };
    if is_present { OfferState::Present } else { OfferState::Absent(reply) }
}

/// Standard output and error of the program.
fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(TSDB);
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("run tsdb");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// True if a text of help has a line that begins with a word.
fn lists(help: &str, word: &str) -> bool {
    help.lines().any(|line| line.split_whitespace().next() == Some(word))
}

fn ask_help(offer: &Offer) -> OfferState {
    let (command, word) = offer.probe.split_once(' ').unwrap_or(("", offer.probe));
    let help = if command.is_empty() { run(&["help"]) } else { run(&["help", command]) };
    if lists(&help, word) { OfferState::Present } else { OfferState::Absent(help) }
}

/// Gives an option to a command together with an unknown option, so that the command does nothing. It reports
/// the first unknown option.
fn ask_option(offer: &Offer) -> OfferState {
    const UNKNOWN: &str = "--no-such-option";
    let mut arguments: Vec<&str> = offer.probe.split(' ').collect();
    let option = arguments.get(1).copied().expect("an option");
    arguments.push(UNKNOWN);
    let said = run(&arguments);
    if said.contains(UNKNOWN) {
        OfferState::Present
    } else {
        OfferState::Absent(format!("{option}: {said}"))
    }
}

fn ask_keys(offer: &Offer) -> OfferState {
    match keys::find(offer.probe) {
        Some(key) if key.is_applied() => OfferState::Present,
        Some(_) => OfferState::WithoutEffect,
        None => OfferState::Absent("an unknown key".to_owned()),
    }
}

/// Looks for a line of `stats` with this name and these tags, in this order.
fn ask_statistics(stats: &str, offer: &Offer) -> OfferState {
    let is_it = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next();
        let (_, _, mut tags) = (words.next(), words.next(), words);
        let wanted = offer.expected.split(' ').filter(|tag| !tag.is_empty());
        name == Some(offer.probe) && wanted.into_iter().all(|tag| tags.next() == Some(tag))
    };
    if stats.lines().any(is_it) {
        OfferState::Present
    } else {
        OfferState::Absent("no line".to_owned())
    }
}

/// Probes all features.
fn ask_all(offers: &[Offer]) -> Vec<OfferState> {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = directory.path().join("opentsdb.conf");
    let of_plugins = format!(
        "tsd.rtpublisher.file = {0}/published\n\
         tsd.core.storage_exception_handler.directory = {0}/spool\n",
        directory.path().display()
    );
    fs::write(&settings, format!("{SETTINGS}{of_plugins}")).expect("a file");
    let settings = settings.to_str().expect("a path");
    let daemon = tsdb(&directory.path().join("data")).args(&["--config", settings]).start();
    let point = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(point)).status, 204);
    let reply = exchange(daemon.address(), b"stats\n");
    let stats = String::from_utf8_lossy(&reply).into_owned();
    let states = offers.iter().map(|offer| match offer.kind {
        // These end the daemon, so they are probed last.
        "http" | "telnet" if offer.name.ends_with("diediedie") => OfferState::Present,
        "http" => ask_endpoint(daemon.address(), offer),
        "telnet" => ask_telnet(daemon.address(), offer),
        "command" | "subcommand" => ask_help(offer),
        "flag" => ask_option(offer),
        "key" => ask_keys(offer),
        "statistic" => ask_statistics(&stats, offer),
        kind => panic!("{kind}: no such kind"),
    });
    let mut states: Vec<OfferState> = states.collect();
    let last = |kind: &str| {
        offers.iter().position(|offer| offer.kind == kind && offer.name.ends_with("diediedie"))
    };
    // The daemon stops when the first connection with such a command ends, so both commands are sent at once.
    let (by_http, by_telnet) = (last("http").expect("one"), last("telnet").expect("one"));
    states[by_http] = ask_endpoint(daemon.address(), &offers[by_http]);
    assert!(daemon.wait().success());
    let daemon = tsdb(&directory.path().join("data")).args(&["--config", settings]).start();
    states[by_telnet] = ask_telnet(daemon.address(), &offers[by_telnet]);
    assert!(daemon.wait().success());
    states
}

/// The row of `docs/differences.md` that begins so: the heading above it, and its first column.
fn row_of_difference(start: &str) -> Option<(&'static str, &'static str)> {
    let mut section = "";
    for line in DIFFERENCES.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        if let Some(row) = line.strip_prefix("| ").filter(|row| row.starts_with(start)) {
            return Some((section, row.split(" |").next().unwrap_or(row)));
        }
    }
    None
}

/// The page's text about a feature. Fails if the data lacks a needed reason.
fn describe(offer: &Offer, state: &OfferState) -> Result<String, String> {
    let Offer { kind, name, difference, reason, .. } = offer;
    match state {
        OfferState::Present if difference.is_empty() => Ok("yes".to_owned()),
        OfferState::Present => {
            let (section, behaviour) = row_of_difference(difference).ok_or_else(|| {
                format!("{kind} {name}: no row {difference:?} in docs/differences.md")
            })?;
            let anchor = section.to_lowercase().replace(' ', "-");
            Ok(format!("yes; [differs](differences.md#{anchor}) in: {behaviour}"))
        }
        OfferState::WithoutEffect if !reason.is_empty() => {
            Ok(format!("accepted, without effect: {reason}"))
        }
        OfferState::Absent(_) if !reason.is_empty() => Ok(format!("no: {reason}")),
        OfferState::WithoutEffect => {
            Err(format!("{kind} {name}: without effect, and without a reason"))
        }
        OfferState::Absent(found) => Err(format!("{kind} {name}: {found}")),
    }
}

fn render(offers: &[Offer], states: &[OfferState]) -> String {
    let mut page = String::from(
        "# Compatibility with OpenTSDB 2.4 and 2.5\n\n\
         What OpenTSDB offers, and its state here. This page is generated by a test that asks the program, with everything enabled that \
         OpenTSDB has off\nby default: `UPDATE_DOCS=1 cargo test --test main compatibility_doc`. Texts, status codes and bytes are compared by other \
         tests; [differences.md](differences.md)\nhas the deliberate differences with their reasons.\n",
    );
    let mut wrong = Vec::new();
    for (kind, title, how) in SECTIONS {
        let of_kind = || offers.iter().zip(states).filter(|(offer, _)| offer.kind == kind);
        let present = of_kind().filter(|(_, state)| **state == OfferState::Present).count();
        let all = of_kind().count();
        let _ = write!(
            page,
            "\n## {title}\n\n{present} of {all}. {how}\n\n| name | state |\n|---|---|\n"
        );
        for (offer, state) in of_kind() {
            match describe(offer, state) {
                Ok(text) => {
                    let _ = writeln!(
                        page,
                        "| `{}` | {text} |",
                        offer.name.replace('`', "").replace('|', "\\|")
                    );
                }
                Err(error) => wrong.push(error),
            }
        }
    }
    assert!(wrong.is_empty(), "not there, and without a reason:\n{}", wrong.join("\n"));
    page
}

#[test]
fn compatibility_page_matches_the_program() {
    let offers = offers();
    let page = render(&offers, &ask_all(&offers));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &page).expect("docs/compatibility.md is writable");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    for (line, expected) in written.lines().zip(page.lines()) {
        assert_eq!(line, expected, "docs/compatibility.md is outdated: set UPDATE_DOCS=1");
    }
    assert_eq!(written, page, "docs/compatibility.md is outdated: set UPDATE_DOCS=1");
}

#[test]
fn offers_are_listed_once_and_of_known_kinds() {
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for offer in offers() {
        assert!(SECTIONS.iter().any(|(kind, ..)| *kind == offer.kind), "{offer:?}");
        *seen.entry((offer.kind, offer.name)).or_default() += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(seen.len() > 400, "{}", seen.len());
}

#[test]
fn what_is_not_there_needs_a_reason() {
    let offer = Offer {
        kind: "http",
        name: "GET /api/nothing",
        probe: "",
        expected: "200",
        difference: "",
        reason: "",
    };
    let absent = OfferState::Absent("404".to_owned());
    assert!(describe(&offer, &absent).is_err());
    assert!(describe(&offer, &OfferState::WithoutEffect).is_err());
    assert_eq!(describe(&offer, &OfferState::Present).as_deref(), Ok("yes"));
    let unknown_row = Offer { difference: "no such row", ..offer };
    assert!(describe(&unknown_row, &OfferState::Present).is_err());
    let explained = Offer { reason: "a reason", ..offer };
    assert_eq!(describe(&explained, &absent).as_deref(), Ok("no: a reason"));
    assert!(Path::new(TSDB).exists());
}
