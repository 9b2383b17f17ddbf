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

/// Which requests the audit log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audited {
    /// No request: they read, or only add points.
    Never,
    /// Each request, as this act.
    Always(&'static str),
    /// Requests that the handler finds to be this act, since only the query string or the body tells.
    IfFound(&'static str),
}

use Audited::{Always, IfFound, Never};

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
    pub(crate) requirement: Requirement,
    pub(crate) reach: MetricReach,
    pub(crate) audited: Audited,
}

impl Row {
    /// A row for any path below a route.
    const fn new(
        route: Route,
        methods: &'static [Method],
        requirement: Requirement,
        reach: MetricReach,
        audited: Audited,
    ) -> Self {
        Self { route, sub_path: ANY, methods, requirement, reach, audited }
    }

    /// The row for one path component below the route.
    const fn below(self, sub_path: &'static str) -> Self {
        Self { sub_path, ..self }
    }
}

/// Every route. The rows of a path are ordered from its weakest to its strongest requirement.
pub(crate) const ROWS: &[Row] = &[
    Row::new(Route::Put, POST, Put, EachMetric, Never),
    Row::new(Route::Rollup, POST, Put, EachMetric, Never),
    Row::new(Route::Histogram, POST, Put, EachMetric, Never),
    Row::new(Route::Annotation, GET, Read, EachMetric, Never),
    Row::new(Route::Annotation, EDIT, Put, EachMetric, Always("annotation edit")),
    Row::new(
        Route::Annotation,
        DELETE,
        Administer("annotation delete"),
        EachMetric,
        Always("annotation delete"),
    ),
    Row::new(Route::Annotations, GET, Read, NoMetric, Never),
    Row::new(Route::Annotations, EDIT, Put, EachMetric, Always("annotation edit")),
    Row::new(
        Route::Annotations,
        DELETE,
        Administer("annotation delete"),
        EachMetric,
        Always("annotation delete"),
    ),
    Row::new(Route::Tree, GET, Read, AllMetrics, Never),
    Row::new(Route::Tree, EDIT, Define, AllMetrics, Always("tree edit")),
    Row::new(Route::Tree, DELETE, Administer("tree delete"), AllMetrics, Always("tree delete")),
    Row::new(Route::Tree, GET, Read, AllMetrics, Never).below("branch"),
    Row::new(Route::Tree, GET_EDIT, Read, AllMetrics, Never).below("test"),
    Row::new(Route::Tree, GET_EDIT, Read, AllMetrics, Never).below("collisions"),
    Row::new(Route::Tree, GET_EDIT, Read, AllMetrics, Never).below("notmatched"),
    Row::new(Route::Tree, GET, Read, AllMetrics, Never).below("rule"),
    Row::new(Route::Tree, EDIT, Define, AllMetrics, Always("tree rule edit")).below("rule"),
    Row::new(
        Route::Tree,
        DELETE,
        Administer("tree rule delete"),
        AllMetrics,
        Always("tree rule delete"),
    )
    .below("rule"),
    Row::new(Route::Tree, POST, Define, AllMetrics, Always("tree rules edit")).below("rules"),
    // A PUT deletes the rules that are not listed.
    Row::new(
        Route::Tree,
        &[Method::PUT],
        Administer("tree rules replace"),
        AllMetrics,
        Always("tree rules replace"),
    )
    .below("rules"),
    Row::new(
        Route::Tree,
        DELETE,
        Administer("tree rules delete"),
        AllMetrics,
        Always("tree rules delete"),
    )
    .below("rules"),
    Row::new(Route::Query, GET_POST_DELETE, Read, EachMetric, IfFound("query delete")),
    Row::new(Route::Search, GET_POST, Read, EachMetric, Never),
    Row::new(Route::Suggest, GET_POST, Read, EachMetric, Never),
    Row::new(Route::LegacySuggest, GET_POST, Read, EachMetric, Never),
    Row::new(Route::Graph, GET_POST, Read, EachMetric, Never),
    Row::new(Route::Uid, GET, Read, AllMetrics, Never),
    Row::new(Route::Uid, GET, Read, AllMetrics, Never).below("list"),
    Row::new(Route::Uid, GET_POST, CreateNames, AllMetrics, Always("uid assign")).below("assign"),
    Row::new(Route::Uid, GET_POST, Administer("uid rename"), AllMetrics, Always("uid rename"))
        .below("rename"),
    Row::new(Route::Uid, GET, Read, AllMetrics, Never).below("uidmeta"),
    Row::new(Route::Uid, EDIT, Put, AllMetrics, Always("uidmeta edit")).below("uidmeta"),
    Row::new(
        Route::Uid,
        DELETE,
        Administer("uidmeta delete"),
        AllMetrics,
        Always("uidmeta delete"),
    )
    .below("uidmeta"),
    Row::new(Route::Uid, GET, Read, AllMetrics, Never).below("tsmeta"),
    Row::new(Route::Uid, EDIT, Put, AllMetrics, Always("tsmeta edit")).below("tsmeta"),
    Row::new(Route::Uid, DELETE, Administer("tsmeta delete"), AllMetrics, Always("tsmeta delete"))
        .below("tsmeta"),
    Row::new(Route::Stats, GET_POST, ReadDaemon, NoMetric, Never),
    Row::new(Route::Stats, GET_POST, Read, AllMetrics, Never).below("cardinality"),
    Row::new(Route::Stats, GET_POST, Read, AllMetrics, Never).below("query"),
    Row::new(Route::Stats, DELETE, Administer("query cancel"), AllMetrics, Always("query cancel"))
        .below("query"),
    Row::new(Route::LegacyStats, GET_POST, ReadDaemon, NoMetric, Never),
    Row::new(Route::Config, GET_POST, ReadDaemon, NoMetric, Never),
    Row::new(Route::Config, GET_POST, User, NoMetric, Never).below("filters"),
    Row::new(Route::Status, GET, User, NoMetric, Never),
    Row::new(Route::Health, GET, User, NoMetric, Never),
    Row::new(Route::Metrics, GET, User, NoMetric, Never),
    Row::new(Route::Version, GET_POST, User, NoMetric, Never),
    Row::new(Route::LegacyVersion, GET_POST, User, NoMetric, Never),
    Row::new(Route::Aggregators, GET_POST, User, NoMetric, Never),
    Row::new(Route::LegacyAggregators, GET_POST, User, NoMetric, Never),
    Row::new(Route::Serializers, GET_POST, User, NoMetric, Never),
    Row::new(Route::Home, GET, User, NoMetric, Never),
    Row::new(Route::StaticFile, GET, User, NoMetric, Never),
    Row::new(Route::Favicon, GET, User, NoMetric, Never),
    Row::new(Route::Unknown, GET, User, NoMetric, Never),
    Row::new(Route::Logs, GET_POST, ReadLog, AllMetrics, IfFound("log level")),
    Row::new(Route::Cluster, GET, Read, AllMetrics, Never),
    Row::new(Route::Cluster, GET, Read, AllMetrics, Never).below("queries"),
    Row::new(
        Route::Cluster,
        DELETE,
        Administer("query cancel"),
        AllMetrics,
        Always("query cancel"),
    )
    .below("queries"),
    Row::new(
        Route::Cluster,
        POST,
        Administer("cluster flush"),
        AllMetrics,
        Always("cluster flush"),
    )
    .below("flush"),
    Row::new(
        Route::Cluster,
        POST,
        Administer("cluster drain"),
        AllMetrics,
        Always("cluster drain"),
    )
    .below("drain"),
    Row::new(Route::Quarantine, GET, Read, AllMetrics, Never),
    Row::new(
        Route::Quarantine,
        POST,
        Administer("quarantine accept"),
        AllMetrics,
        Always("quarantine accept"),
    )
    .below("accept"),
    Row::new(Route::Verify, GET, Read, AllMetrics, Never),
    Row::new(Route::Verify, POST, Administer("verify"), AllMetrics, Always("verify")),
    Row::new(Route::Verify, POST, Administer("verify stop"), AllMetrics, Always("verify stop"))
        .below("stop"),
    Row::new(Route::Snapshot, GET, Read, AllMetrics, Never),
    Row::new(Route::Snapshot, POST, Administer("snapshot"), AllMetrics, Always("snapshot")),
    Row::new(
        Route::DropCaches,
        GET_DELETE,
        Administer("dropcaches"),
        NoMetric,
        Always("dropcaches"),
    ),
    Row::new(Route::DieDieDie, GET_POST, Administer("diediedie"), NoMetric, Always("diediedie")),
];

/// Stands for a route without rows: it needs an administrator, and a test finds it.
const WITHOUT_ROWS: &Row =
    &Row::new(Route::Home, GET, Administer("this request"), AllMetrics, Always("this request"));

/// Finds the row of a request. `method` is the method that its handler uses ([`effective_method`]).
pub(crate) fn of_request(route: Route, sub_path: &str, method: &Method) -> &'static Row {
    let has_own = rows_of(route).any(|row| sub_path.eq_ignore_ascii_case(row.sub_path));
    let sub_path = if has_own { sub_path } else { ANY };
    let mut rows = rows_of(route).filter(|row| row.sub_path.eq_ignore_ascii_case(sub_path));
    let listed = rows.clone().find(|row| row.methods.contains(method));
    listed.or_else(|| rows.by_ref().last()).unwrap_or(WITHOUT_ROWS)
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

/// Returns whether the audit log records a telnet command, as which act.
pub(crate) const fn audited_telnet(command: AdminCommand) -> Audited {
    match command {
        AdminCommand::Stats
        | AdminCommand::Version
        | AdminCommand::Status
        | AdminCommand::Help
        | AdminCommand::Exit => Never,
        AdminCommand::DropCaches => Always("dropcaches"),
        AdminCommand::DieDieDie => Always("diediedie"),
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

    /// Lists each act of the table by a request for it: path, method and act.
    pub(crate) fn acts() -> Vec<(String, Method, &'static str)> {
        let act = |row: &Row| match (row.audited, row.methods) {
            (Always(act), [method, ..]) => Some((path(row), method.clone(), act)),
            _ => None,
        };
        ROWS.iter().filter_map(act).collect()
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

    fn in_words_audited(audited: Audited) -> String {
        match audited {
            Never => String::new(),
            Always(act) => act.to_owned(),
            IfFound(act) => format!("{act}, if it is one"),
        }
    }

    fn table() -> String {
        let mut table = String::from(
            "| request | methods | needs | rights by metric | in the audit log |\n|---|---|---|---|---|\n",
        );
        for row in ROWS.iter().filter(|row| row.route != Route::Unknown) {
            let methods: Vec<&str> = row.methods.iter().map(Method::as_str).collect();
            let (path, methods, needs) = (path(row), methods.join(", "), in_words(row.requirement));
            let reach = in_words_reach(row.reach);
            let audited = in_words_audited(row.audited);
            table.push_str(&format!("| `{path}` | {methods} | {needs} | {reach} | {audited} |\n"));
        }
        let points = in_words(TELNET_POINTS);
        table.push_str(&format!(
            "| telnet `put`, `rollup`, `histogram` | | {points} | {} | |\n",
            in_words_reach(EachMetric)
        ));
        for (word, command) in TELNET {
            let needs = in_words(of_telnet(command));
            let audited = in_words_audited(audited_telnet(command));
            table.push_str(&format!("| telnet `{word}` | | {needs} | | {audited} |\n"));
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

    /// A new route that changes something needs a decision: only points have no line.
    #[test]
    fn every_change_but_points_is_an_act_of_the_audit_log() {
        for row in ROWS {
            let adds_points = [Route::Put, Route::Rollup, Route::Histogram].contains(&row.route);
            let context = format!("{} {:?}", path(row), row.methods);
            if row.requirement.changes() && !adds_points {
                assert!(matches!(row.audited, Always(_)), "{context}");
            } else {
                assert!(!matches!(row.audited, Always(_)), "{context}");
            }
            if let Administer(operation) = row.requirement {
                assert_eq!(row.audited, Always(operation), "{context}");
            }
        }
        for (word, command) in TELNET {
            let is_act = audited_telnet(command) != Never;
            assert_eq!(is_act, of_telnet(command).changes(), "{word}");
        }
    }

    #[test]
    fn every_route_has_rows_for_the_paths_without_their_own() {
        for (route, label) in Route::ALL {
            assert!(rows_of(route).any(|row| row.sub_path == ANY), "{label}");
        }
    }

    #[test]
    fn a_method_without_a_row_needs_the_most_of_its_path() {
        let needs = |route, sub_path, method| of_request(route, sub_path, &method).requirement;
        assert_eq!(needs(Route::Snapshot, "", Method::GET), Read);
        assert_eq!(needs(Route::Snapshot, "x", Method::DELETE), Administer("snapshot"));
        assert_eq!(needs(Route::Tree, "RULES", Method::PUT), Administer("tree rules replace"));
        assert_eq!(needs(Route::Tree, "rules", Method::GET), Administer("tree rules delete"));
        assert_eq!(needs(Route::Put, "", Method::GET), Put);
        assert_eq!(needs(Route::Uid, "other", Method::DELETE), Read);
    }
}
