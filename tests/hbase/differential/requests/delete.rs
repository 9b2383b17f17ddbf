//! Deletes by query, with preceding puts and following queries.

use serde_json::json;

use super::query::aggregator;
use crate::differential::{
    data::{BASE, Data},
    random::Random,
    request::Request,
};

pub(super) fn request(data: &Data, number: u64, random: &mut Random) -> Request {
    let metric = format!("s{}.delete", data.seed);
    let hour = BASE + 3_600 * random.between(0, 5);
    let selected = format!(
        "{metric}{}",
        random.pick(&["", "{host=web01}", "{host=*}", "{}{host=not_literal_or(web01)}"])
    );
    let query = |random: &mut Random| {
        Request::get("/api/query")
            .parameter("start", (hour + random.between(0, 1_800)).to_string())
            .parameter("end", (hour + random.between(1_801, 9_000)).to_string())
            .parameter("m", format!("{}:{selected}", aggregator(random)))
    };
    match random.below(8) {
        0..3 => {
            let points: Vec<_> = (0..random.between(1, 8))
                .map(|at| {
                    // Every point is unique, since a put at the instant of a delete stays hidden.
                    let time = BASE + (number as i64 * 8 + at) % 21_600;
                    json!({
                        "metric": metric, "timestamp": time, "value": random.between(-99, 99),
                        "tags": {"host": random.pick(&["web01", "web02"])},
                    })
                })
                .collect();
            Request::post("/api/put", points.into()).flag("sync").flag("details").write()
        }
        3 => query(random).method("DELETE").write(),
        4 => {
            let body = json!({
                "start": hour, "end": hour + random.between(1, 4_000), "delete": true,
                "queries": [{"aggregator": "sum", "metric": metric}],
            });
            Request::post("/api/query", body).write()
        }
        5 => query(random).parameter("method_override", "delete").write(),
        _ => query(random),
    }
}
