//! Compares a response with the recorded response.

use tsd_testkit::HttpResponse;

use super::json::Json;

/// Checks a response against `expect` or `expect_error` of a case.
pub(crate) fn check(case: &Json, response: &HttpResponse) -> Result<(), String> {
    let got = Json::parse(&response.body);
    let failure = |what: &str| {
        let expected = case.get("expect").or_else(|| case.get("expect_error"));
        let expected = expected.map_or_else(String::new, Json::to_string);
        Err(format!(
            "{what}\n  expected {expected}\n  got {} {}",
            response.status,
            shortened(&response.body)
        ))
    };
    let Ok(got) = got else { return failure("no JSON") };
    if let Some(expected) = case.get("expect_error") {
        let error = got.get("error");
        let code = error.and_then(|error| error.get("code"));
        let message = error.and_then(|error| error.text_of("message")).unwrap_or_default();
        let expected_text = expected.text_of("message").unwrap_or_default();
        let has_message = match expected.text_of("match") {
            Some("exact") => message == expected_text,
            _ => message.contains(expected_text),
        };
        let number = |status: u16| Json::Number(status.to_string());
        let status = number(response.status);
        // An error of the request is a 400, also where OpenTSDB failed with a 500.
        let is_request_error =
            response.status == 400 && expected.get("status") == Some(&number(500));
        let has_status =
            (is_request_error || expected.get("status") == Some(&status)) && code == Some(&status);
        return if has_message && has_status { Ok(()) } else { failure("another error") };
    }
    if response.status != 200 {
        return failure("rejected");
    }
    let Some(expected) = case.get("expect") else { return failure("nothing to compare with") };
    // Responses of expressions repeat the request, which was not recorded.
    let got = match got {
        Json::Object(fields) if expected.get("query").is_none() => {
            Json::Object(fields.into_iter().filter(|(key, _)| key != "query").collect())
        }
        other => other,
    };
    same(expected, &got, "").or_else(|what| failure(&what))
}

/// Checks equality apart from the order of keys; the order of points matters. Doubles are equal bit
/// by bit, and never equal to an integer.
fn same(expected: &Json, got: &Json, path: &str) -> Result<(), String> {
    let differ = || Err(format!("at {path}: {got} instead of {expected}"));
    match (expected, got) {
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.try_for_each(|(i, (a, b))| same(a, b, &format!("{path}/{i}")))
        }
        (Json::Object(a), Json::Object(b)) if a.len() == b.len() => {
            if path.ends_with("/dps") {
                return a.iter().zip(b).try_for_each(|((time, a), (other, b))| {
                    if time == other {
                        same(a, b, &format!("{path}/{time}"))
                    } else {
                        Err(format!("at {path}: time {other} instead of {time}"))
                    }
                });
            }
            a.iter().try_for_each(|(key, a)| match got.get(key) {
                Some(b) => same(a, b, &format!("{path}/{key}")),
                None => differ(),
            })
        }
        (Json::Number(a), Json::Number(b)) if is_float(a) && is_float(b) => {
            let bits = |digits: &str| digits.parse().map(f64::to_bits);
            if bits(a) == bits(b) { Ok(()) } else { differ() }
        }
        _ if expected == got => Ok(()),
        _ => differ(),
    }
}

fn is_float(digits: &str) -> bool {
    digits.contains(['.', 'e', 'E'])
}

/// The start of a body; stack traces are long.
fn shortened(body: &str) -> String {
    const LENGTH: usize = 2_000;
    body.chars().take(LENGTH).collect()
}

#[test]
fn differences_are_found() {
    let expected = r#"{"expect":[{"metric":"m","tags":{"a":"x","b":"y"},"aggregateTags":["c","d"],"dps":{"1":4,"2":0.1,"3":"NaN","4":null}}]}"#;
    let case = Json::parse(expected).expect("JSON");
    let series = |tags: &str, aggregated: &str, dps: &str| {
        let tags = format!(r#""tags":{{{tags}}},"aggregateTags":[{aggregated}]"#);
        let body = format!(r#"[{{"metric":"m",{tags},"dps":{{{dps}}}}}]"#);
        check(&case, &HttpResponse { status: 200, body })
    };
    let (tags, aggregated) = (r#""b":"y","a":"x""#, r#""c","d""#);
    let dps = r#""1":4,"2":0.1,"3":"NaN","4":null"#;
    assert_eq!(series(tags, aggregated, dps), Ok(()));
    assert!(series(r#""a":"x""#, aggregated, dps).is_err());
    assert!(series(tags, r#""d","c""#, dps).is_err());
    for dps in [
        r#""1":4.0,"2":0.1,"3":"NaN","4":null"#,
        r#""1":4,"2":0.10000000000000002,"3":"NaN","4":null"#,
        r#""1":4,"2":0.1,"3":null,"4":null"#,
        r#""1":4,"2":0.1,"3":"NaN","4":"NaN""#,
        r#""2":0.1,"1":4,"3":"NaN","4":null"#,
        r#""1":4,"2":0.1,"3":"NaN""#,
        r#""1":4,"2":0.1,"3":"NaN","4":null,"4":null"#,
    ] {
        assert!(series(tags, aggregated, dps).is_err(), "{dps}");
    }
    let expected = r#"{"expect_error":{"status":400,"message":"no","match":"exact"}}"#;
    let case = Json::parse(expected).expect("JSON");
    let error = |status: u16, message: &str| {
        let body = format!(r#"{{"error":{{"code":{status},"message":"{message}"}}}}"#);
        check(&case, &HttpResponse { status, body })
    };
    assert_eq!(error(400, "no"), Ok(()));
    assert!(error(500, "no").is_err());
    assert!(error(400, "no!").is_err());
    let expected = r#"{"expect_error":{"status":500,"message":"no","match":"exact"}}"#;
    let case = Json::parse(expected).expect("JSON");
    let error = |status: u16, message: &str| {
        let body = format!(r#"{{"error":{{"code":{status},"message":"{message}"}}}}"#);
        check(&case, &HttpResponse { status, body })
    };
    assert_eq!(error(400, "no"), Ok(()), "an error of the request");
    assert!(error(404, "no").is_err());
    assert!(error(400, "yes").is_err());
}
