//! The heavy queries, and a client that repeats one.

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read, Write},
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tsd_testkit::{
    connect,
    day_load::{DayLoad, FIRST_SECOND},
};

/// A query that needs much CPU or memory.
pub(crate) struct HeavyQuery {
    pub(crate) name: &'static str,
    request: String,
}

/// Number of responses by status.
#[derive(Debug, Default)]
pub(crate) struct StatusCounts(BTreeMap<String, usize>);

impl StatusCounts {
    pub(crate) fn add(&mut self, other: Self) {
        for (status, count) in other.0 {
            *self.0.entry(status).or_default() += count;
        }
    }
}

impl fmt::Display for StatusCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> =
            self.0.iter().map(|(status, count)| format!("{status} × {count}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// All heavy queries.
pub(crate) fn all(day: DayLoad) -> Vec<HeavyQuery> {
    let end = day.last_second();
    let raw_end = FIRST_SECOND + (end - FIRST_SECOND) * 5_000 / 8_640;
    let day_of = |m: &str| get(&format!("start={FIRST_SECOND}&end={end}&m={m}"));
    let many = |count: usize, m: &str| {
        let sub = format!("{{\"aggregator\":\"sum\",\"metric\":\"{m}\"}}");
        let subs = vec![sub; count].join(",");
        post(
            "/api/query",
            &format!("{{\"start\":{FIRST_SECOND},\"end\":{end},\"queries\":[{subs}]}}"),
        )
    };
    let exp = format!(
        "{{\"time\":{{\"start\":\"{FIRST_SECOND}\",\"end\":\"{end}\",\"aggregator\":\"sum\"}},\
         \"filters\":[{{\"id\":\"f\",\"tags\":[{{\"type\":\"wildcard\",\"tagk\":\"host\",\
         \"filter\":\"*\",\"groupBy\":true}}]}}],\
         \"metrics\":[{{\"id\":\"a\",\"metric\":\"bench.walk\",\"filter\":\"f\",\
         \"fillPolicy\":{{\"policy\":\"zero\"}}}},\
         {{\"id\":\"b\",\"metric\":\"bench.integers\",\"filter\":\"f\",\
         \"fillPolicy\":{{\"policy\":\"zero\"}}}}],\
         \"expressions\":[{{\"id\":\"e\",\"expr\":\"a + b * 2\"}}],\
         \"outputs\":[{{\"id\":\"e\"}}]}}"
    );
    let heavy = |name, request| HeavyQuery { name, request };
    vec![
        heavy(
            "5 M raw points",
            get(&format!("start={FIRST_SECOND}&end={raw_end}&m=none:bench.walk")),
        ),
        heavy("sum of 8.6 M raw points", day_of("sum:bench.walk")),
        heavy("p99 over 1 000 series, raw", day_of("p99:bench.walk")),
        heavy("1 000 groups of a day", day_of("avg:5m-avg:bench.walk{host=*}")),
        heavy("1 000 groups, 10 s filled to 1 s", day_of("avg:1s-avg-zero:bench.walk{host=*}")),
        heavy(
            "20 years in steps of 1 s, filled",
            get(&format!("start=1000000000&end={end}&m=sum:1s-avg-zero:bench.walk")),
        ),
        heavy(
            "regular expression over all tag values",
            day_of("sum:1h-avg:bench.walk{host=regexp(.*(0%7C1)+.*(2%7C3)+.*$)}"),
        ),
        heavy(
            "a regular expression that explodes",
            post(
                "/api/query",
                &format!(
                    "{{\"start\":{FIRST_SECOND},\"end\":{end},\"queries\":[{{\"aggregator\":\"sum\",\
                     \"metric\":\"bench.walk\",\"filters\":[{{\"type\":\"regexp\",\"tagk\":\"host\",\
                     \"filter\":\"((a{{99}}){{99}}){{99}}\",\"groupBy\":true}}]}}]}}"
                ),
            ),
        ),
        heavy("200 sub queries over everything", many(200, "bench.walk")),
        heavy("10 000 sub queries", many(10_000, "bench.walk")),
        heavy("a body of 10 MB", post("/api/query", &"[".repeat(10_000_000))),
        heavy("exp over two times 1 000 series, raw", post("/api/query/exp", &exp)),
        heavy(
            "gexp over 1 000 series, raw",
            format!(
                "GET /api/query/gexp?start={FIRST_SECOND}&end={end}\
                 &exp=movingAverage(scale(sum:bench.walk%7Bhost=*%7D,2),100) {HEAD}\r\n"
            ),
        ),
    ]
}

const HEAD: &str = "HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n";

fn get(parameters: &str) -> String {
    let parameters = parameters.replace('{', "%7B").replace('}', "%7D");
    format!("GET /api/query?{parameters} {HEAD}\r\n")
}

fn post(path: &str, json: &str) -> String {
    let length = json.len();
    format!(
        "POST {path} {HEAD}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    )
}

impl HeavyQuery {
    /// Repeats the query; closes the connection during it when `stop` is set.
    pub(crate) fn repeat_until(&self, address: SocketAddr, stop: &AtomicBool) -> StatusCounts {
        let mut statuses = StatusCounts::default();
        let mut buffer = vec![0; 256 << 10];
        while !stop.load(Ordering::Relaxed) {
            let status = self.send(address, stop, &mut buffer);
            *statuses.0.entry(status).or_default() += 1;
        }
        statuses
    }

    fn send(&self, address: SocketAddr, stop: &AtomicBool, buffer: &mut [u8]) -> String {
        let mut stream = connect(address);
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        // A daemon that rejects a body early closes while it is being sent.
        let sent = stream.write_all(self.request.as_bytes());
        let mut status = None;
        loop {
            match stream.read(buffer) {
                Ok(0) => return status.unwrap_or_else(|| "closed".to_owned()),
                Ok(got) => {
                    let head = String::from_utf8_lossy(&buffer[..got.min(16)]);
                    status.get_or_insert_with(|| {
                        head.split(' ').nth(1).unwrap_or_default().to_owned()
                    });
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    return status.unwrap_or_else(|| format!("closed, sent {}", sent.is_ok()));
                }
            }
            if stop.load(Ordering::Relaxed) {
                return "hung up".to_owned();
            }
        }
    }
}
