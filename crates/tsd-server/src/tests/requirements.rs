//! Issue 37, open doors: every route, method and role against the table of requirements.

use hyper::Method;

use super::{
    authentication::{Guarded, POINT},
    harness::TestResponse,
};
use crate::{
    Permission, Permissions,
    auth::{Requirement, of_request, requirement_table, takes_override},
};

const ROLES: [&str; 6] = ["ADMINISTRATOR", "WRITER", "PUTONLY", "READER", "CREATOR", "GUEST"];
const METHODS: [Method; 5] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE];

/// Starts a server with a user for each role, named after the role.
async fn start() -> Guarded {
    Guarded::start(&ROLES.map(|role| format!("{role} {role}")).each_ref().map(String::as_str)).await
}

fn may(role: &str, permission: Option<Permission>) -> bool {
    permission.is_none_or(|needed| Permissions::parse(role).unwrap().contains(needed))
}

/// Requests of a path: the sent method, the URI, and the effective method.
fn requests(path: &str, overridable: bool) -> Vec<(Method, String, Method)> {
    let plain = METHODS.map(|method| {
        let counts = if method == Method::HEAD { Method::GET } else { method.clone() };
        (method, path.to_owned(), counts)
    });
    let overrides = [Method::GET, Method::POST, Method::PUT, Method::DELETE].map(|method| {
        let uri = format!("{path}?method_override={}", method.as_str().to_lowercase());
        (Method::GET, uri, if overridable { method } else { Method::GET })
    });
    plain.into_iter().chain(overrides).collect()
}

#[tokio::test]
async fn every_route_method_and_role_is_as_in_the_table() {
    let server = start().await;
    for (path, route, sub_path) in requirement_table::paths() {
        for (method, uri, counts) in requests(&path, takes_override(route, sub_path)) {
            let requirement = of_request(route, sub_path, &counts).requirement;
            if requirement == Requirement::CreateNames {
                // Depends on the kinds of the names; the test of `/api/uid/assign` covers it.
                continue;
            }
            let is_change = requirement.changes();
            // A signed token with the role has the same rights.
            for (role, user) in ROLES
                .iter()
                .flat_map(|role| [(role, (*role).to_owned()), (role, format!("jwt:{role}"))])
            {
                let status = server.status(&user, method.clone(), &uri, "").await;
                let refused = !may(role, requirement.permission());
                let context = format!("{user} {method} {uri}: {status}, {requirement:?}");
                assert_ne!(status, 401, "{context}");
                if method == Method::HEAD && is_change {
                    // Outside the API it is a 400.
                    assert!([400, 405].contains(&status), "{context}");
                } else {
                    assert_eq!(status == 403, refused, "{context}");
                }
            }
            let open = ["/api/health", "/metrics"].contains(&path.as_str());
            // This server has no recorder and thus no metrics.
            let is_open = open && path != "/metrics";
            let status = server.status("", method.clone(), &uri, "").await;
            assert_eq!(status == 401, !is_open, "nobody: {method} {uri}: {status}");
        }
    }
}

#[tokio::test]
async fn guests_and_readers_edit_no_meta_objects_trees_and_rules() {
    let server = start().await;
    assert_eq!(server.status("ADMINISTRATOR", Method::POST, "/api/put", POINT).await, 204);
    let tree = server.send("ADMINISTRATOR", Method::POST, "/api/tree?name=t", "").await;
    assert_eq!(tree.status, 200, "{}", tree.text());
    let meta = "/api/uid/uidmeta?uid=000001&type=metric&display_name=x";
    let (rule, level) = ("/api/tree/rule?treeid=1&level=0&order=0&type=metric", "&separator=.");
    let rule = format!("{rule}{level}");
    let edits = ["/api/tree?name=u", "/api/tree?treeid=1&notes=n", &rule];
    for method in ["post", "put"] {
        for user in ["READER", "GUEST", "CREATOR"] {
            for uri in edits.into_iter().chain([meta]) {
                assert_refused(&server, user, method, uri).await;
            }
        }
        for user in ["WRITER", "PUTONLY"] {
            for uri in edits {
                assert_refused(&server, user, method, uri).await;
            }
            let stored = edit(&server, user, method, meta).await;
            assert!([200, 304].contains(&stored.status), "{}", stored.text());
        }
        for uri in edits {
            let stored = edit(&server, "ADMINISTRATOR", method, uri).await;
            assert!([200, 304].contains(&stored.status), "{uri}: {}", stored.text());
        }
    }
    let trees = server.send("READER", Method::GET, "/api/tree", "").await;
    assert_eq!(trees.json().as_array().map(Vec::len), Some(3), "{}", trees.text());
}

/// Sends an edit by GET with `method_override`.
async fn edit(server: &Guarded, user: &str, method: &str, uri: &str) -> TestResponse {
    server.send(user, Method::GET, &format!("{uri}&method_override={method}"), "").await
}

async fn assert_refused(server: &Guarded, user: &str, method: &str, uri: &str) {
    let by_get = edit(server, user, method, uri).await;
    let plain = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let direct = server.send(user, plain, uri, "").await;
    for answer in [by_get, direct] {
        assert_eq!(answer.status, 403, "{user} {method} {uri}: {}", answer.text());
    }
}

#[tokio::test]
async fn guests_and_senders_read_no_names_queries_and_logs() {
    let server = start().await;
    for uri in [
        "/api/suggest?type=metrics",
        "/api/uid/list",
        "/api/uid/uidmeta?uid=000001&type=metric",
        "/api/uid/tsmeta?m=m",
        "/api/tree",
        "/api/tree/branch?treeid=1",
        "/api/stats/query",
        "/api/stats/cardinality",
        "/API/v1/Stats/QUERY",
        "/api/config",
        "/api/config/sources",
        "/api/cluster/queries",
        "/api/quarantine",
        "/stats",
    ] {
        for user in ["GUEST", "PUTONLY", "WRITER", "CREATOR"] {
            assert_eq!(server.status(user, Method::GET, uri, "").await, 403, "{user} {uri}");
        }
        assert_ne!(server.status("READER", Method::GET, uri, "").await, 403, "{uri}");
    }
    assert_eq!(server.status("READER", Method::GET, "/logs", "").await, 403);
    assert_ne!(server.status("ADMINISTRATOR", Method::GET, "/logs", "").await, 403);
    let stats = server.tsd.exchange(b"auth basic PUTONLY PUTONLY\nstats\nversion\n").await;
    assert!(
        stats.contains("\nuser \"PUTONLY\" does not have the permission HTTP_QUERY\nnet.opentsdb"),
        "{stats}"
    );
    let stats = server.tsd.exchange(b"auth basic READER READER\nstats\n").await;
    assert!(stats.contains("tsd.uid.cache-hit"), "{stats}");
}
