//! Renders and checks the line of a new credential.
//!
//! Each word is checked as a daemon reads it, and an error names the argument instead of the line.

use anyhow::{anyhow, ensure};
use jiff::{SignedDuration, Timestamp};
use tsd_query::Duration;
use tsd_server::{Users, parse_expiry};

use crate::output::utc;

/// Fields of a new line after its roles.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) expires: Option<Timestamp>,
    pub(super) metrics: Option<&'a str>,
    /// Names and values of the limits.
    pub(super) limits: Vec<(&'static str, &'a str)>,
}

/// Parses the argument of `--expires`, which must be later than `now`.
pub(super) fn expiry(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let at = match Duration::parse_exact(text) {
        Ok(duration) => now.checked_add(SignedDuration::from_millis(duration.millis))?,
        Err(_) => parse_expiry(text).map_err(|_| {
            anyhow!("--expires {text}: expected a duration such as 90d, a date such as 2027-03-01, or a time such as 2027-03-01T00:00:00Z")
        })?,
    };
    ensure!(at > now, "--expires {text}: {} has passed", utc(at));
    Ok(Timestamp::from_second(at.as_second())?)
}

/// Renders the line of a user.
pub(super) fn line(
    name: &str,
    hash: &str,
    roles: &str,
    fields: &Fields<'_>,
) -> anyhow::Result<String> {
    check_word("NAME", name)?;
    ensure!(!name.starts_with('#'), "NAME {name:?}: the name of a user does not begin with #");
    parsed(&format!("NAME {name:?}"), format!("{name} {hash} GUEST"))?;
    check_word("ROLES", roles)?;
    let expires = fields.expires.map(|at| format!(" expires={at}")).unwrap_or_default();
    let line = format!("{name} {hash} {roles}{expires}");
    let mut line = parsed(&format!("ROLES {roles:?}"), line)?;
    let metrics = fields.metrics.map(|metrics| ("metrics", metrics));
    for (field, value) in metrics.into_iter().chain(fields.limits.iter().copied()) {
        let argument = format!("--{field}");
        check_word(&argument, value)?;
        line = parsed(&argument, format!("{line} {field}={value}"))?;
    }
    Ok(line + "\n")
}

/// Fails if a value is not a limit.
pub(super) fn check_limit(field: &str, value: &str) -> anyhow::Result<()> {
    let argument = format!("--{field}");
    check_word(&argument, value)?;
    // Any line without an error of its own.
    parsed(&argument, format!("a certificate GUEST {field}={value}")).map(drop)
}

/// Returns the line if a daemon accepts it.
fn parsed(argument: &str, line: String) -> anyhow::Result<String> {
    match Users::parse(&line) {
        Ok(_) => Ok(line),
        // Omits the line number, which would refer to a file.
        Err(error) => Err(anyhow!("{argument}: {}", error.what())),
    }
}

/// Fails if an argument is not one word of a line.
fn check_word(argument: &str, text: &str) -> anyhow::Result<()> {
    ensure!(!text.is_empty(), "{argument} is empty");
    let separated = if argument == "ROLES" { ": separate roles by commas only" } else { "" };
    ensure!(!text.contains(char::is_whitespace), "{argument} {text:?} has white space{separated}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_server::hash_token;

    use super::*;

    #[test]
    fn a_line_is_checked_as_a_daemon_reads_it() {
        let hash = hash_token("t");
        let expected = format!("alice {hash} READER,WRITER\n");
        let rendered = |roles: &str, fields: &Fields<'_>| line("alice", &hash, roles, fields);
        assert_eq!(rendered("READER,WRITER", &Fields::default()).unwrap(), expected);
        let fields = Fields {
            expires: Some(parse_expiry("2027-03-01").unwrap()),
            metrics: Some("read:a"),
            limits: vec![("points", "50k/s"), ("memory", "off")],
        };
        let expected = format!(
            "alice {hash} READER expires=2027-03-01T00:00:00Z metrics=read:a points=50k/s memory=off\n"
        );
        assert_eq!(rendered("READER", &fields).unwrap(), expected);
    }

    #[test]
    fn an_error_names_the_field_that_is_wrong() {
        let hash = hash_token("t");
        for (field, value, expected) in [
            ("metrics", "a", "--metrics: \"a\" is not a right"),
            ("metrics", "read:a b", "--metrics \"read:a b\" has white space"),
            ("points", "50k", "--points: \"50k\" is not a limit for points: expected a rate"),
            ("series", "many", "--series: \"many\" is not a limit for series"),
            ("queries", "", "--queries is empty"),
            ("bytes", "1 GiB", "--bytes \"1 GiB\" has white space"),
            ("memory", "x", "--memory: \"x\" is not a limit for memory: expected a size"),
        ] {
            let fields = Fields { limits: vec![(field, value)], ..Fields::default() };
            let error = line("alice", &hash, "READER", &fields).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    /// Issue 37.
    #[test]
    fn an_error_names_the_argument_that_is_wrong() {
        let hash = hash_token("t");
        for (name, roles, expected) in [
            ("al ice", "READER", "NAME \"al ice\" has white space"),
            ("a:b", "READER", "NAME \"a:b\": a name has at most 128 bytes, no colon"),
            ("#a", "READER", "NAME \"#a\": the name of a user does not begin with #"),
            ("", "READER", "NAME is empty"),
            ("a:b", "BOSS", "NAME \"a:b\""),
            ("a", "BOSS", "ROLES \"BOSS\": \"BOSS\" is neither a role"),
            ("a", "", "ROLES is empty"),
            ("a", "READER, WRITER", "ROLES \"READER, WRITER\" has white space: separate roles by"),
        ] {
            let error = line(name, &hash, roles, &Fields::default()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{name:?} {roles:?}: {error}");
        }
    }

    #[test]
    fn an_expiry_is_a_duration_or_a_time_in_the_future() {
        let now = parse_expiry("2027-01-01").unwrap();
        let at = |text: &str| expiry(text, now).map(|at| at.to_string());
        assert_eq!(at("90d").unwrap(), "2027-04-01T00:00:00Z");
        assert_eq!(at("2h").unwrap(), "2027-01-01T02:00:00Z");
        assert_eq!(at("2027-03-01").unwrap(), "2027-03-01T00:00:00Z");
        assert_eq!(at("2027-03-01T01:00:00+01:00").unwrap(), "2027-03-01T00:00:00Z");
        for (text, expected) in [
            ("2027-01-01", "--expires 2027-01-01: 2027-01-01 00:00:00 UTC has passed"),
            ("soon", "--expires soon: expected a duration such as 90d"),
            ("90", "--expires 90: expected a duration such as 90d"),
            ("999999999999d", "--expires 999999999999d: "),
        ] {
            let error = at(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
