//! Status, probes and reports of the store.

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::{HealthImpact, StoreComponent};
use tsd_storage::HealthProblem;

use super::harness::{Tsd, config, engine_config};
use crate::{ServerConfig, ServerMode};

async fn state(tsd: &Tsd) -> (String, u16, Value) {
    let status = tsd.get("/api/status").await.json();
    let ready = tsd.get("/api/health/ready").await;
    assert_eq!(ready.json()["status"], status["status"]);
    assert_eq!(ready.json()["problems"], status["problems"]);
    assert_eq!(ready.json()["ready"], ready.status == 200);
    let word = status["status"].as_str().unwrap().to_owned();
    assert_eq!(tsd.exchange(b"status\n").await, format!("{word}\n"));
    assert_eq!(tsd.get("/api/health/live").await.status, 200);
    (word, ready.status, status["problems"].clone())
}

#[tokio::test]
async fn the_state_is_what_the_store_reports() {
    let tsd = Tsd::start().await;
    assert_eq!(state(&tsd).await, ("ok".to_owned(), 200, json!([])));
    for (impact, word, ready, text) in [
        (HealthImpact::Degraded, "ok", 200, "degraded"),
        (HealthImpact::SomeReadsFail, "partial", 200, "some reads fail"),
        (HealthImpact::WritesRejected, "partial", 503, "writes are rejected"),
        (HealthImpact::Unavailable, "error", 503, "unavailable"),
    ] {
        let problem = HealthProblem::new(StoreComponent::Disk, impact, "0 bytes are free");
        tsd.storage.inner().set_problems(vec![problem]);
        let problems = json!([{ "part": "disk", "impact": text, "reason": "0 bytes are free" }]);
        assert_eq!(state(&tsd).await, (word.to_owned(), ready, problems));
    }
    // The backend fails for every daemon.
    let problem = HealthProblem::new(StoreComponent::Flush, HealthImpact::WritesRejected, "down");
    tsd.storage.inner().set_problems(vec![problem.common_if(true)]);
    let found = state(&tsd).await;
    assert_eq!((found.0.as_str(), found.1, found.2[0]["reason"] == "down"), ("partial", 200, true));
    tsd.storage.inner().set_problems(Vec::new());
    assert_eq!(state(&tsd).await, ("ok".to_owned(), 200, json!([])));
}

#[tokio::test]
async fn health_does_not_read_names() {
    let tsd = Tsd::start().await;
    tsd.get("/api/uid/assign?metric=a").await;
    // Every scan would wait for ever.
    let hang = || tsd_storage::Fault::Error(tsd_storage::StorageError::Closed);
    tsd.storage.script(tsd_storage::Operation::ScanBatch, [hang(), hang()]);
    assert_eq!(state(&tsd).await.0, "ok");
    // The faults remain, so nothing was scanned.
    assert_ne!(tsd.get("/api/suggest?type=metrics").await.status, 200);
}

#[tokio::test]
async fn probes_are_served_whatever_is_switched_off() {
    let mode = ServerMode::ReadOnly;
    let config = ServerConfig { api_enabled: false, ui_enabled: false, mode, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let problem = HealthProblem::new(StoreComponent::Disk, HealthImpact::WritesRejected, "full");
    tsd.storage.inner().set_problems(vec![problem]);
    for uri in ["/api/health/live", "/api/health/ready", "/API/v1/Health/Ready"] {
        // A daemon that only reads needs no writes.
        assert_eq!(tsd.get(uri).await.status, 200, "{uri}");
        let head = tsd.send(Method::HEAD, uri, &[], "").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
    }
    assert_eq!(tsd.get("/api/health").await.status, 404);
    assert_eq!(tsd.get("/api/status").await.status, 404);
    assert_eq!(tsd.post("/api/health/live", "").await.status, 405);
}
