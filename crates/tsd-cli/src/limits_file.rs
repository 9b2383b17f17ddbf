//! Parser of the query limits by metric (`tsd.query.limits.overrides.config`): a JSON array of rules.
//! [`crate::followed_file`] follows the file.

use serde_json::Value;
use tsd_engine::LimitOverride;

/// The text is not a list of rules.
#[derive(Debug, thiserror::Error)]
#[error("expected a JSON array of rules with regex, byteLimit and dataPointsLimit: {0}")]
pub(crate) struct LimitsError(String);

/// The rules of a file, in its order.
pub(crate) fn parse_limits(text: &str) -> Result<Vec<LimitOverride>, LimitsError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| LimitsError(error.to_string()))?;
    let rules = value.as_array().ok_or_else(|| LimitsError("it is not an array".to_owned()))?;
    let rule = |(place, rule): (usize, &Value)| {
        let wrong = |what: &str| LimitsError(format!("rule {}: {what}", place + 1));
        let regex = rule.get("regex").and_then(Value::as_str);
        let regex = regex.ok_or_else(|| wrong("regex must be a text"))?;
        let limit = |name: &str| match rule.get(name) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| wrong(&format!("{name} must be a whole number of at least 0"))),
        };
        LimitOverride::try_new(regex, limit("byteLimit")?, limit("dataPointsLimit")?)
            .map_err(|error| wrong(&error.to_string()))
    };
    rules.iter().enumerate().map(rule).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_engine::LimitOverrides;

    use super::*;

    const RULES: &str =
        r#"[{"regex":"^sys\\.","byteLimit":10,"dataPointsLimit":20},{"regex":"cpu"}]"#;

    #[test]
    fn rules_are_read_in_file_order() {
        let rules = LimitOverrides::default();
        rules.replace(parse_limits(RULES).unwrap());
        assert_eq!(rules.find("sys.cpu"), Some((10, 20)));
        assert_eq!(rules.find("app.cpu"), Some((0, 0)));
        assert_eq!(rules.find("app.mem"), None);
        assert!(parse_limits("[]").unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_rule_and_the_cause() {
        for (text, expected) in [
            ("{}", "it is not an array"),
            ("[1]", "rule 1: regex must be a text"),
            (r#"[{"regex":"a"},{"regex":"(("}]"#, "rule 2: \"((\" is no pattern"),
            (r#"[{"regex":"a","byteLimit":-1}]"#, "rule 1: byteLimit must be a whole number"),
            (r#"[{"regex":"a","dataPointsLimit":"1"}]"#, "rule 1: dataPointsLimit must be"),
            ("[", "EOF while parsing"),
        ] {
            let error = parse_limits(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
