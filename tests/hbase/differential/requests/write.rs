//! Requests that change the stored data: points, annotations, names.

use serde_json::{Value, json};

use crate::differential::{
    data::{BASE, Data},
    random::Random,
    request::Request,
};

pub(super) fn annotation(data: &Data, number: u64, random: &mut Random) -> Request {
    // Each kind has its own year, so that its requests see no other data.
    let start = BASE + 86_400 * 400 + (number as i64 % 20) * 10;
    let tsuid = &data.any_series(random).tsuid;
    match random.below(17) {
        12 => {
            let mut request = Request::get("/api/annotation")
                .parameter("start_time", start.to_string())
                .parameter("tsuid", tsuid.as_str());
            if random.chance(60) {
                request = request.parameter("description", format!("uri {number}"));
            }
            if random.chance(30) {
                request = request.parameter("notes", "some notes");
            }
            if random.chance(30) {
                request =
                    request.parameter("end_time", random.pick(&["1h-ago", "x", "1400000000"]));
            }
            match random.below(5) {
                0 => request,
                1 => request.parameter("method_override", "delete").write(),
                2 => request.parameter("method_override", random.pick(&["nope", ""])),
                3 => request.parameter("method_override", "put").write(),
                _ => request.parameter("method_override", "post").write(),
            }
        }
        13 => {
            let mut body = json!({"startTime": start, "endTime": start + 90, "tsuids": [tsuid]});
            if random.chance(20) {
                body["global"] = json!(true);
            }
            if random.chance(10) {
                body["tsuids"] = json!(random.pick(&["zz", ""]));
            }
            Request::post("/api/annotation/bulk", body).method("DELETE").write()
        }
        14 => {
            let request = Request::get("/api/annotation/bulk")
                .method("DELETE")
                .parameter("start_time", start.to_string())
                .parameter("tsuids", tsuid.as_str())
                .write();
            if random.chance(60) {
                request.parameter("end_time", (start + 50).to_string())
            } else {
                request
            }
        }
        15 => {
            let bad = [
                json!([{"description": "no start"}]),
                json!([]),
                json!({}),
                json!([null]),
                json!([{"startTime": "x"}]),
                json!([{"startTime": start, "tsuid": "zz", "description": "d"}]),
                json!([{"startTime": start, "tsuid": "000001", "description": "d"}]),
                json!([{"startTime": start, "custom": []}]),
                json!([{"startTime": start, "unknown": 1, "description": "d"}]),
                json!([{"startTime": -5, "description": "d"}]),
            ][random.index(10)]
            .clone();
            Request::post("/api/annotation/bulk", bad).write()
        }
        16 => {
            let mut body = json!({
                "startTime": start, "tsuid": tsuid, "description": format!("of {number}"),
            });
            if random.chance(20) {
                body["startTime"] = json!(start * 1_000 + 5);
            }
            if random.chance(30) {
                body["custom"] = json!({"owner": "x"});
            }
            let methods = ["POST", "PUT", "DELETE"];
            Request::post("/api/annotation", body).method(methods[random.index(3)]).write()
        }
        0..4 => {
            let mut body = json!({"startTime": start});
            if random.chance(90) {
                body["description"] = json!(format!("note {number} of {}", data.seed));
            }
            if random.chance(30) {
                body["notes"] = json!("é \"quoted\"\n");
            }
            if random.chance(30) {
                body["custom"] = json!({"b": "1", "a": "2", "owner": null});
            }
            if random.chance(30) {
                body["endTime"] = json!(start + 5);
            }
            let method = random.pick(&["POST", "PUT", "DELETE"]);
            let method = if method == "PUT" {
                "PUT"
            } else if method == "DELETE" {
                "DELETE"
            } else {
                "POST"
            };
            Request::post("/api/annotation", body).method(method).write()
        }
        4 | 5 => {
            let notes: Vec<Value> = (0..random.between(0, 3))
                .map(|at| json!({"startTime": start + at, "description": format!("bulk {number}")}))
                .collect();
            Request::post("/api/annotation/bulk", notes.into()).write()
        }
        6 => {
            let body =
                json!({"startTime": start, "endTime": start + 50, "global": random.chance(80)});
            Request::post("/api/annotation/bulk", body).method("DELETE").write()
        }
        7 | 8 => Request::get("/api/annotation").parameter("start_time", start.to_string()),
        9 => Request::get("/api/annotations")
            .parameter("start_time", (BASE - 1).to_string())
            .parameter("end_time", (BASE + 20_000).to_string()),
        10 => Request::get("/api/annotations")
            .parameter("start_time", (BASE + 86_400 * 399).to_string())
            .parameter("end_time", (BASE + 86_400 * 401).to_string()),
        _ => match random.below(7) {
            0 => Request::get("/api/annotation"),
            1 => Request::post("/api/annotation", json!({"description": "no start"})),
            2 => Request::get("/api/annotation").parameter("start_time", "nope"),
            3 => {
                Request::post("/api/annotation/bulk", json!({"startTime": start})).method("DELETE")
            }
            4 => Request::get("/api/annotations")
                .parameter("start_time", "2")
                .parameter("end_time", "1"),
            5 => Request::post("/api/annotation", Value::Null).text("{nope").write(),
            _ => Request::get("/api/annotation/bulk"),
        },
    }
}

const BAD_POINTS: &[&str] = &[
    r#"{"metric":"","timestamp":1356998400,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"timestamp":1356998400,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":0,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":-5,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":null,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"host":""}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"":"x"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"abc","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"1.2.3","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"1e999","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":NaN,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"Infinity","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":99999999999999999999,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":99999999999999,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"a b","timestamp":1356998400,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"h$":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"host":"web 01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":true,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"a":"1","b":"1","c":"1","d":"1","e":"1","f":"1","g":"1","h":"1","i":"1"}}"#,
    "null",
    r#"{"metric":"M","timestamp":1356998400.5,"value":" 4 ","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":"1356998400","value":"+4","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"host":null}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":[1],"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"0x10","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"1.5d","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":-0.0,"tags":{"host":"web01"}}"#,
];

pub(super) fn put(data: &Data, number: u64, random: &mut Random) -> Request {
    let metric = format!("s{}.put", data.seed);
    let good = |random: &mut Random| {
        let value = match random.below(5) {
            0 => json!(random.between(-500, 500)),
            1 => json!(random.between(-500, 500) as f64 / 7.0),
            2 => json!(random.between(-500, 500).to_string()),
            3 => json!("1.25e3"),
            _ => json!(random.between(0, i64::MAX - 1)),
        };
        let time = BASE + number as i64 * 100 + random.between(0, 90);
        json!({"metric": metric, "timestamp": time, "value": value, "tags": {"host": "web01"}})
            .to_string()
    };
    let mut points = Vec::new();
    for _ in 0..random.between(0, 3) {
        points.push(if random.chance(50) {
            good(random)
        } else {
            random.pick(BAD_POINTS).replace("\"M\"", &format!("{metric:?}"))
        });
    }
    let text = match random.below(20) {
        0 => "{".to_owned(),
        1 => "\"text\"".to_owned(),
        2 => "[]".to_owned(),
        3 => " ".to_owned(),
        4 => "[1]".to_owned(),
        5 => "{}".to_owned(),
        _ if points.len() == 1 && random.chance(50) => points.remove(0),
        _ => format!("[{}]", points.join(",")),
    };
    let mut request = Request::get("/api/put").method("POST").text(&text).write();
    for (flag, percent) in [("details", 60), ("summary", 30), ("sync", 50)] {
        if random.chance(percent) {
            request = request.flag(flag);
        }
    }
    if random.chance(5) {
        request = request.parameter("sync_timeout", "10000");
    }
    request
}

const BAD_LINES: &[&str] = &[
    "put",
    "put M",
    "put M 1356998400",
    "put M 1356998400 1",
    "put M x 1 host=web01",
    "put M 0 1 host=web01",
    "put M -1 1 host=web01",
    "put M 1356998400 x host=web01",
    "put M 1356998400 NaN host=web01",
    "put M 1356998400 1e999 host=web01",
    "put  1356998400 1 host=web01",
    "put M 1356998400 1 host",
    "put M 1356998400 1 host=",
    "put M 1356998400 1 =x",
    "put M 1356998400 1 host=a host=b",
    "put M 1356998400 1 host=a=b",
    "put M 1356998400  host=web01",
    "put M 1356998400 1 ho$t=a",
    "put M$ 1356998400 1 host=a",
    "put M 1356998400 1 host=a$",
    "put M 99999999999999 1 host=web01",
    "put M 1356998400 99999999999999999999 host=web01",
    "put M 1356998400 12e host=web01",
    "put M 1356998400 9223372036854775808 host=web01",
    "put M 1356998400 - host=web01",
    "put M 1356998400 1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
    "nope",
    "rollup 1h-sum M 1356998400 1 host=web01",
    "rollup",
    "rollup SUM M 1356998400 1 host=web01",
    "histogram M 1356998400 1 host=web01",
    "histogram",
    "help",
    "PUT",
    "",
    "put M 1356998400 1  host=web01",
    "dropcaches",
    "put M 1356998400 0x10 host=web01",
    "put M 1356998400 1.5f host=web01",
    "put M 1356998400.123 5 host=web01",
    "put M 1356998400 +5 host=web01",
    "put M 1356998400 -0 host=web01",
    "put M 1356998400 .5 host=web01",
    "put M 1356998400 5. host=web01",
    "put M 1356998400 1E3 host=web01",
    "put M 1356998400 -Infinity host=web01",
    "put M 1356998400 1.0e400 host=web01",
    "put M 1356998400 00000000000000000001 host=web01",
    "put M 1356998400 -9223372036854775808 host=web01",
    "put M 1356998400 -9223372036854775809 host=web01",
    "put M +1356998400 1 host=web01",
    "put M 1356998400x 1 host=web01",
    "put M 99999999999999999999 1 host=web01",
    "put M 1356998400 1 host=web01 host=web01",
    "put M 1356998400 1 host=web01 dc",
    "put M 1356998400 1 host=web01\tdc=lga",
    "put\tM 1356998400 1 host=web01",
    " put M 1356998400 1 host=web01",
    "put M 1356998400 1 host=web01 ",
    "put M 1356998400 1 host=web01\r",
    "put M 1356998400 1 ho/st=we.b-0_1",
    "rollup 11m-sum M 1356998400 1 host=web01",
    "rollup 11m-nope M 1356998400 1 host=web01",
    "rollup 11m-avg M 1356998400 1 host=web01",
    "rollup 9m-sum M 1356998400 1 host=web01",
    "rollup 11m-sum:sum M 1356998400 1 host=web01",
    "rollup 11m-sum:nope M 1356998400 1 host=web01",
    "rollup 11m-sum:avg M 1356998400 1 host=web01",
    "rollup 11m-sum:SUM M 1356998400 1 host=web01 _aggregate=max",
    "rollup sum M 1356998400 1 host=web01",
    "rollup nope M 1356998400 1 host=web01",
    "rollup  M 1356998400 1 host=web01",
    "rollup : M 1356998400 1 host=web01",
    "rollup 11m- M 1356998400 1 host=web01",
    "rollup -sum M 1356998400 1 host=web01",
    "rollup 11m-sum-max M 1356998400 1 host=web01",
    "rollup 11m-sum M 1356998400000 1 host=web01",
    "rollup 11m-sum M 1356998400 x host=web01",
    "rollup 11m-sum M 1356998400 1",
    "rollup 11m-sum M 0 1 host=web01",
    "rollup 11m-sum  1356998400 1 host=web01",
    "histogram M 1356998400 0,1.5=3:1.5,2=1 host=web01",
    "histogram M 1356998400 0,1=3:u=1:o=2 host=web01",
    "histogram M 1356998400 42 AAAA host=web01",
    "histogram M 1356998400 7 AAAA host=web01",
    "histogram M 1356998400 300 AAAA host=web01",
    "histogram M 1356998400  host=web01",
    "histogram M x 0,1=3 host=web01",
    "histogram M 0 0,1=3 host=web01",
    "histogram M 1356998400 0,1=3 host",
    "histogram  1356998400 0,1=3 host=web01",
    "histogram M$ 1356998400 0,1=3 host=web01",
    "histogram M 1356998400 0,1=3",
    "HELP",
    "Help",
    "putx",
];

pub(super) fn telnet(data: &Data, number: u64, random: &mut Random) -> Request {
    let metric = format!("s{}.telnet", data.seed);
    let lines: Vec<String> = (0..random.between(1, 3))
        .map(|_| {
            if random.chance(30) {
                let time = BASE + number as i64 * 100 + random.between(0, 90);
                return format!("put {metric} {time} {} host=web01", random.between(-99, 99));
            }
            random
                .pick(BAD_LINES)
                .replace(" M", &format!(" {metric}"))
                .replace("\tM", &format!("\t{metric}"))
        })
        .collect();
    Request::telnet(lines.join("\n"))
}

pub(super) fn uid(data: &Data, number: u64, random: &mut Random) -> Request {
    let name = format!("s{}.uid{number}", data.seed);
    match random.below(17) {
        12 => {
            let old = format!("s{}.uid{}", data.seed, random.below(number.max(1)));
            Request::get("/api/uid/rename").parameter("metric", old).parameter("name", name).write()
        }
        13 => {
            let body = json!({"metric": format!("s{}.int", data.seed), "name": "host$"});
            Request::post("/api/uid/rename", body).write()
        }
        14 => {
            let other = format!("s{}.float", data.seed);
            let body = json!({"metric": format!("s{}.int", data.seed), "name": other});
            Request::post("/api/uid/rename", body).write()
        }
        15 => {
            let bodies = ["{", "[]", "{}", r#"{"metric":"x"}"#, r#"{"name":"x"}"#, "", "null"];
            let paths = ["/api/uid/assign", "/api/uid/rename"];
            Request::get(paths[random.index(2)])
                .method(["POST", "PUT", "DELETE"][random.index(3)])
                .text(bodies[random.index(7)])
                .write()
        }
        16 => {
            let bodies = [
                json!({"metric": []}),
                json!({"metric": [""]}),
                json!({"metric": "text"}),
                json!({"nope": ["x"]}),
                json!({"tagk": ["a b", "host"], "tagv": ["web01", "é"]}),
            ];
            Request::post("/api/uid/assign", bodies[random.index(5)].clone()).write()
        }
        0 | 1 => Request::get("/api/uid/assign").parameter("metric", name).write(),
        2 => Request::get("/api/uid/assign")
            .parameter("metric", format!("bad$name,{name},host"))
            .write(),
        3 => Request::post("/api/uid/assign", json!({"metric": [name], "tagk": ["host"]})).write(),
        4 => Request::get("/api/uid/uidmeta")
            .parameter("uid", "000001")
            .parameter("type", random.pick(&["metric", "tagk", "nope"])),
        5 => Request::get("/api/uid/uidmeta").parameter("uid", "FFFFFF").parameter("type", "tagk"),
        6 => Request::get("/api/uid/rename")
            .parameter("metric", "no.such")
            .parameter("name", name)
            .write(),
        7 => Request::get("/api/uid/rename").parameter("metric", "no.such"),
        8 => Request::get("/api/uid/assign"),
        9 => Request::get("/api/uid/nope"),
        10 => Request::get("/api/uid/tsmeta").parameter("tsuid", "000001000001000001"),
        _ => Request::get("/api/uid/tsmeta").parameter("m", "no.such{host=web01}"),
    }
}
