//! Requirements on the sender of a request, for every route and telnet command. Authorisation,
//! `docs/authentication.md` and the tests share this table.
//!
//! A request that the table does not list gets the last, strongest requirement of its path, so a forgotten method is
//! closed. Handlers check requirements that depend on the body of a request (a query that deletes).

use hyper::Method;
use tsd_protocol::AdminCommand;

use super::Permission;
use crate::route::Route;

/// Requirement on the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Any authenticated user, whatever its permissions.
    User,
    /// `HTTP_QUERY`, since the response describes the daemon; nothing if the path is open.
    ReadDaemon,
    /// `HTTP_QUERY`.
    Read,
    /// The role ADMINISTRATOR, to read the log.
    ReadLog,
    /// `HTTP_PUT`.
    Put,
    /// `TELNET_PUT`.
    TelnetPut,
    /// The permission to create each kind of name in the request, or to administer the daemon. The handler checks it,
    /// since it knows the kinds.
    CreateNames,
    /// The role ADMINISTRATOR. Without users anybody meets it, as in OpenTSDB.
    Define,
    /// Administration of the daemon: by role, or by address without users. The text names the operation in errors.
    Administer(&'static str),
}

use Requirement::{
    Administer, CreateNames, Define, Put, Read, ReadDaemon, ReadLog, TelnetPut, User,
};

impl Requirement {
    /// Returns the permission that a user must have.
    pub(crate) const fn permission(self) -> Option<Permission> {
        match self {
            Self::User | Self::CreateNames => None,
            Self::ReadDaemon | Self::Read => Some(Permission::HttpQuery),
            Self::Put => Some(Permission::HttpPut),
            Self::TelnetPut => Some(Permission::TelnetPut),
            Self::ReadLog | Self::Define | Self::Administer(_) => Some(Permission::Administer),
        }
    }

    /// Returns true if the request changes data or state.
    pub(crate) const fn changes(self) -> bool {
        match self {
            Self::User | Self::ReadDaemon | Self::Read | Self::ReadLog => false,
            Self::Put
            | Self::TelnetPut
            | Self::CreateNames
            | Self::Define
            | Self::Administer(_) => true,
        }
    }

    /// Returns true if `tsd.core.authentication.open_paths` may exempt a request from it.
    pub(crate) const fn may_be_open(self) -> bool {
        matches!(self, Self::User | Self::ReadDaemon)
    }
}

/// How the rights of a user by metric apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricReach {
    /// The request shows and changes nothing that belongs to a metric.
    NoMetric,
    /// The handler or the engine checks each metric of the request.
    EachMetric,
    /// The request may show or change any metric, so its sender needs the rights to all of them.
    AllMetrics,
}

use MetricReach::{AllMetrics, EachMetric, NoMetric};

/// Any path below a route that has no own rows.
const ANY: &str = "*";
const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const EDIT: &[Method] = &[Method::POST, Method::PUT];
const DELETE: &[Method] = &[Method::DELETE];
const GET_POST: &[Method] = &[Method::GET, Method::POST];
const GET_DELETE: &[Method] = &[Method::GET, Method::DELETE];
const GET_EDIT: &[Method] = &[Method::GET, Method::POST, Method::PUT];
const GET_POST_DELETE: &[Method] = &[Method::GET, Method::POST, Method::DELETE];

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    route: Route,
    /// The path component after the route, in lower case, or [`ANY`].
    sub_path: &'static str,
    methods: &'static [Method],
    requirement: Requirement,
    reach: MetricReach,
}

const fn row(
    route: Route,
    sub_path: &'static str,
    methods: &'static [Method],
    requirement: Requirement,
    reach: MetricReach,
) -> Row {
    Row { route, sub_path, methods, requirement, reach }
}

/// Every route. The rows of a path are ordered from its weakest to its strongest requirement.
pub(crate) const ROWS: &[Row] = &[
    row(Route::Put, ANY, POST, Put, EachMetric),
    row(Route::Rollup, ANY, POST, Put, EachMetric),
    row(Route::Histogram, ANY, POST, Put, EachMetric),
    row(Route::Annotation, ANY, GET, Read, EachMetric),
    row(Route::Annotation, ANY, EDIT, Put, EachMetric),
    row(Route::Annotation, ANY, DELETE, Administer("annotation delete"), EachMetric),
    row(Route::Annotations, ANY, GET, Read, NoMetric),
    row(Route::Annotations, ANY, EDIT, Put, EachMetric),
    row(Route::Annotations, ANY, DELETE, Administer("annotation delete"), EachMetric),
    row(Route::Tree, ANY, GET, Read, AllMetrics),
    row(Route::Tree, ANY, EDIT, Define, AllMetrics),
    row(Route::Tree, ANY, DELETE, Administer("tree delete"), AllMetrics),
    row(Route::Tree, "branch", GET, Read, AllMetrics),
    row(Route::Tree, "test", GET_EDIT, Read, AllMetrics),
    row(Route::Tree, "collisions", GET_EDIT, Read, AllMetrics),
    row(Route::Tree, "notmatched", GET_EDIT, Read, AllMetrics),
    row(Route::Tree, "rule", GET, Read, AllMetrics),
    row(Route::Tree, "rule", EDIT, Define, AllMetrics),
    row(Route::Tree, "rule", DELETE, Administer("tree rule delete"), AllMetrics),
    row(Route::Tree, "rules", POST, Define, AllMetrics),
    // A PUT deletes the rules that are not listed.
    row(Route::Tree, "rules", &[Method::PUT], Administer("tree rules replace"), AllMetrics),
    row(Route::Tree, "rules", DELETE, Administer("tree rules delete"), AllMetrics),
    row(Route::Query, ANY, GET_POST_DELETE, Read, EachMetric),
    row(Route::Search, ANY, GET_POST, Read, EachMetric),
    row(Route::Suggest, ANY, GET_POST, Read, EachMetric),
    row(Route::LegacySuggest, ANY, GET_POST, Read, EachMetric),
    row(Route::Graph, ANY, GET_POST, Read, EachMetric),
    row(Route::Uid, ANY, GET, Read, AllMetrics),
    row(Route::Uid, "list", GET, Read, AllMetrics),
    row(Route::Uid, "assign", GET_POST, CreateNames, AllMetrics),
    row(Route::Uid, "rename", GET_POST, Administer("uid rename"), AllMetrics),
    row(Route::Uid, "uidmeta", GET, Read, AllMetrics),
    row(Route::Uid, "uidmeta", EDIT, Put, AllMetrics),
    row(Route::Uid, "uidmeta", DELETE, Administer("uidmeta delete"), AllMetrics),
    row(Route::Uid, "tsmeta", GET, Read, AllMetrics),
    row(Route::Uid, "tsmeta", EDIT, Put, AllMetrics),
    row(Route::Uid, "tsmeta", DELETE, Administer("tsmeta delete"), AllMetrics),
    row(Route::Stats, ANY, GET_POST, ReadDaemon, NoMetric),
    row(Route::Stats, "cardinality", GET_POST, Read, AllMetrics),
    row(Route::Stats, "query", GET_POST, Read, AllMetrics),
    row(Route::Stats, "query", DELETE, Administer("query cancel"), AllMetrics),
    row(Route::LegacyStats, ANY, GET_POST, ReadDaemon, NoMetric),
    row(Route::Config, ANY, GET_POST, ReadDaemon, NoMetric),
    row(Route::Config, "filters", GET_POST, User, NoMetric),
    row(Route::Status, ANY, GET, User, NoMetric),
    row(Route::Health, ANY, GET, User, NoMetric),
    row(Route::Metrics, ANY, GET, User, NoMetric),
    row(Route::Version, ANY, GET_POST, User, NoMetric),
    row(Route::LegacyVersion, ANY, GET_POST, User, NoMetric),
    row(Route::Aggregators, ANY, GET_POST, User, NoMetric),
    row(Route::LegacyAggregators, ANY, GET_POST, User, NoMetric),
    row(Route::Serializers, ANY, GET_POST, User, NoMetric),
    row(Route::Home, ANY, GET, User, NoMetric),
    row(Route::StaticFile, ANY, GET, User, NoMetric),
    row(Route::Favicon, ANY, GET, User, NoMetric),
    row(Route::Unknown, ANY, GET, User, NoMetric),
    row(Route::Logs, ANY, GET_POST, ReadLog, AllMetrics),
    row(Route::Cluster, ANY, GET, Read, AllMetrics),
    row(Route::Cluster, "queries", GET, Read, AllMetrics),
    row(Route::Cluster, "queries", DELETE, Administer("query cancel"), AllMetrics),
    row(Route::Cluster, "flush", POST, Administer("cluster flush"), AllMetrics),
    row(Route::Cluster, "drain", POST, Administer("cluster drain"), AllMetrics),
    row(Route::Quarantine, ANY, GET, Read, AllMetrics),
    row(Route::Quarantine, "accept", POST, Administer("quarantine accept"), AllMetrics),
    row(Route::Verify, ANY, GET, Read, AllMetrics),
    row(Route::Verify, ANY, POST, Administer("verify"), AllMetrics),
    row(Route::Verify, "stop", POST, Administer("verify stop"), AllMetrics),
    row(Route::Snapshot, ANY, GET, Read, AllMetrics),
    row(Route::Snapshot, ANY, POST, Administer("snapshot"), AllMetrics),
    row(Route::DropCaches, ANY, GET_DELETE, Administer("dropcaches"), NoMetric),
    row(Route::DieDieDie, ANY, GET_POST, Administer("diediedie"), NoMetric),
];

/// Returns the requirement of a request, and how rights by metric apply to it. `method` is the method that its handler
/// uses ([`effective_method`]).
pub(crate) fn of_request(
    route: Route,
    sub_path: &str,
    method: &Method,
) -> (Requirement, MetricReach) {
    let has_own = rows_of(route).any(|row| sub_path.eq_ignore_ascii_case(row.sub_path));
    let sub_path = if has_own { sub_path } else { ANY };
    let mut rows = rows_of(route).filter(|row| row.sub_path.eq_ignore_ascii_case(sub_path));
    let listed = rows.clone().find(|row| row.methods.contains(method));
    // A route without rows needs an administrator, and a test finds it.
    let row = listed.or_else(|| rows.by_ref().last());
    row.map_or((Administer("this request"), AllMetrics), |row| (row.requirement, row.reach))
}

fn rows_of(route: Route) -> impl Iterator<Item = &'static Row> + Clone {
    ROWS.iter().filter(move |row| row.route == route)
}

/// Returns true if `method_override` may replace the GET of a request to this path.
pub(crate) fn takes_override(route: Route, sub_path: &str) -> bool {
    match route {
        Route::Annotation | Route::Annotations | Route::Tree | Route::Search | Route::Query => true,
        Route::Uid => ["uidmeta", "tsmeta"].iter().any(|own| sub_path.eq_ignore_ascii_case(own)),
        _ => false,
    }
}

/// Requirement of the points of a telnet connection (`put`, `rollup`, `histogram`).
pub(crate) const TELNET_POINTS: Requirement = TelnetPut;

/// Returns the requirement of a telnet command.
pub(crate) const fn of_telnet(command: AdminCommand) -> Requirement {
    match command {
        AdminCommand::Stats => ReadDaemon,
        AdminCommand::Version | AdminCommand::Status | AdminCommand::Help | AdminCommand::Exit => {
            User
        }
        AdminCommand::DropCaches => Administer("dropcaches"),
        AdminCommand::DieDieDie => Administer("diediedie"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, clippy::format_push_string, reason = "tests")]

    use std::{env, fs};

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/authentication.md");
    const BEGIN: &str = "<!-- table of requirements: generated by UPDATE_DOCS=1 cargo test -p tsd-server requirements -->\n";
    const END: &str = "<!-- end of the table -->";

    /// Renders the path of a row.
    fn path(row: &Row) -> String {
        let label = Route::ALL.iter().find(|(route, _)| *route == row.route).unwrap().1;
        match (row.route, row.sub_path) {
            (Route::Home, _) => "/".to_owned(),
            (_, ANY) => format!("/{label}"),
            (_, below) => format!("/{label}/{below}"),
        }
    }

    /// Lists every row: its path and first method, and how rights by metric apply.
    pub(crate) fn reaches() -> Vec<(String, Vec<Method>, MetricReach)> {
        ROWS.iter().map(|row| (path(row), row.methods.to_vec(), row.reach)).collect()
    }

    /// Lists every path of the table with its route and the component after it.
    pub(crate) fn paths() -> Vec<(String, Route, &'static str)> {
        let below = |row: &Row| if row.sub_path == ANY { "" } else { row.sub_path };
        let mut paths: Vec<_> = ROWS.iter().map(|row| (path(row), row.route, below(row))).collect();
        paths.dedup();
        paths
    }

    fn in_words(requirement: Requirement) -> &'static str {
        match requirement {
            User => "a user",
            ReadDaemon | Read => "`HTTP_QUERY`",
            Put => "`HTTP_PUT`",
            TelnetPut => "`TELNET_PUT`",
            CreateNames => "`CREATE_…` of each kind in it, or `ADMINISTRATOR`",
            ReadLog | Define | Administer(_) => "`ADMINISTRATOR`",
        }
    }

    const fn in_words_reach(reach: MetricReach) -> &'static str {
        match reach {
            NoMetric => "",
            EachMetric => "each metric",
            AllMetrics => "all metrics",
        }
    }

    fn table() -> String {
        let mut table =
            String::from("| request | methods | needs | rights by metric |\n|---|---|---|---|\n");
        for row in ROWS.iter().filter(|row| row.route != Route::Unknown) {
            let methods: Vec<&str> = row.methods.iter().map(Method::as_str).collect();
            let (path, methods, needs) = (path(row), methods.join(", "), in_words(row.requirement));
            let reach = in_words_reach(row.reach);
            table.push_str(&format!("| `{path}` | {methods} | {needs} | {reach} |\n"));
        }
        let points = in_words(TELNET_POINTS);
        table.push_str(&format!(
            "| telnet `put`, `rollup`, `histogram` | | {points} | {} |\n",
            in_words_reach(EachMetric)
        ));
        for (word, command) in TELNET {
            table
                .push_str(&format!("| telnet `{word}` | | {} | |\n", in_words(of_telnet(command))));
        }
        table
    }

    pub(crate) const TELNET: [(&str, AdminCommand); 7] = [
        ("stats", AdminCommand::Stats),
        ("version", AdminCommand::Version),
        ("status", AdminCommand::Status),
        ("help", AdminCommand::Help),
        ("exit", AdminCommand::Exit),
        ("dropcaches", AdminCommand::DropCaches),
        ("diediedie", AdminCommand::DieDieDie),
    ];

    #[test]
    fn the_page_has_the_table_of_requirements() {
        let page = fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(PAGE, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
            return;
        }
        assert_eq!(found, table(), "UPDATE_DOCS=1 cargo test -p tsd-server requirements");
    }

    #[test]
    fn every_route_has_rows_for_the_paths_without_their_own() {
        for (route, label) in Route::ALL {
            assert!(rows_of(route).any(|row| row.sub_path == ANY), "{label}");
        }
    }

    #[test]
    fn a_method_without_a_row_needs_the_most_of_its_path() {
        let needs = |route, sub_path, method| of_request(route, sub_path, &method).0;
        assert_eq!(needs(Route::Snapshot, "", Method::GET), Read);
        assert_eq!(needs(Route::Snapshot, "x", Method::DELETE), Administer("snapshot"));
        assert_eq!(needs(Route::Tree, "RULES", Method::PUT), Administer("tree rules replace"));
        assert_eq!(needs(Route::Tree, "rules", Method::GET), Administer("tree rules delete"));
        assert_eq!(needs(Route::Put, "", Method::GET), Put);
        assert_eq!(needs(Route::Uid, "other", Method::DELETE), Read);
    }
}
