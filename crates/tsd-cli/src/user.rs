//! `tsdb user`: lists, adds, removes and checks the credentials in the file of users.
//!
//! The command works on the file, since only its owner decides who is a user. A daemon follows the file.

mod users_file;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tsd_query::Duration;
use tsd_server::{UserLine, Users, hash_password, hash_token, new_token, parse_expiry};

use self::users_file::UsersFile;
use crate::{
    args::{
        Overrides, UserAddArgs, UserCheckArgs, UserCommand, UserFileArgs, UserListArgs,
        UserRemoveArgs,
    },
    columns::table,
    config::USERS_FILE,
    followed_file,
    output::{print_result, tell, utc},
    password, print_lines,
    tool::{checked, failed},
};

/// Titles of the columns of `tsdb user list`.
const TITLES: [&str; 6] = ["NAME", "KIND", "ID", "ROLES", "METRICS", "EXPIRES"];

/// Runs `tsdb user`.
pub(crate) fn main(command: &UserCommand) -> ExitCode {
    let done = match command {
        UserCommand::List(args) => list(args),
        UserCommand::Add(args) => add(args),
        UserCommand::Remove(args) => remove(args),
        UserCommand::Check(args) => return checked(check(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// The path of the file: the argument, else the setting.
fn path_of(file: Option<&PathBuf>, overrides: &Overrides) -> anyhow::Result<PathBuf> {
    if let Some(file) = file {
        return Ok(file.clone());
    }
    let config = overrides.load()?;
    let path = config.text(USERS_FILE).filter(|path| !path.is_empty());
    let path =
        path.with_context(|| format!("no file of users: give --file FILE, or set {USERS_FILE}"))?;
    Ok(path.into())
}

fn location(args: &UserFileArgs) -> anyhow::Result<PathBuf> {
    path_of(args.file.as_ref(), &args.overrides)
}

fn read(path: &Path) -> anyhow::Result<String> {
    followed_file::read(path).with_context(|| path.display().to_string())
}

/// The valid lines with their numbers.
fn lines_of(text: &str) -> Vec<(usize, UserLine)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = text.lines().map(|line| UserLine::parse(line).and_then(Result::ok));
    parsed.enumerate().filter_map(|(at, line)| Some((at + 1, line?))).collect()
}

fn list(args: &UserListArgs) -> anyhow::Result<()> {
    let path = location(&args.location)?;
    let (text, now) = (read(&path)?, Timestamp::now());
    let lines = lines_of(&text);
    let object = |(number, line): &(usize, UserLine)| {
        json!({
            "line": number,
            "name": line.name(),
            "kind": line.kind(),
            "id": line.id(),
            "roles": line.roles().split(',').collect::<Vec<_>>(),
            "permissions": line.permissions(),
            "metrics": line.metrics(),
            "expires": line.expires().map(|at| at.to_string()),
            "expired": is_expired(line, now),
        })
    };
    print_result(args.json, &lines.iter().map(object).collect(), || {
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(lines.iter().map(|(_, line)| {
            let (name, kind) = (line.name().to_owned(), line.kind().to_owned());
            let metrics = line.metrics().unwrap_or("all").to_owned();
            [name, kind, line.id(), line.roles().to_owned(), metrics, expiry_of(line, now)]
        }));
        Ok(table(&rows)?)
    })?;
    let errors = Users::errors(&text).len();
    ensure!(
        errors == 0,
        "{}: {errors} lines have errors, which tsdb user check shows",
        path.display()
    );
    Ok(())
}

fn is_expired(line: &UserLine, now: Timestamp) -> bool {
    line.expires().is_some_and(|at| at <= now)
}

fn expiry_of(line: &UserLine, now: Timestamp) -> String {
    let suffix = if is_expired(line, now) { " (expired)" } else { "" };
    line.expires().map(|at| utc(at) + suffix).unwrap_or_default()
}

fn add(args: &UserAddArgs) -> anyhow::Result<()> {
    let path = path_of(args.file.as_ref(), &args.overrides)?;
    let expires = args.expires.as_deref().map(|text| expiry(text, Timestamp::now())).transpose()?;
    let metrics = args.metrics.as_deref();
    let line = |hash: &str| line(&args.name, hash, &args.roles, (expires, metrics));
    // Reports wrong arguments before the user types anything.
    line(&hash_token(""))?;
    if path == Path::new("-") {
        let (line, token) = new_line(args, line)?;
        if let Some(token) = token {
            // The line is useless without the token.
            writeln!(io::stderr(), "The token, which is not shown again:\n{token}")?;
        }
        return Ok(print_lines(&line)?);
    }
    let changed = |text: &str, line: &str| {
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let changed = format!("{text}{separator}{line}");
        Users::parse(&changed).map(|_| changed)
    };
    let shown = path.display();
    let text = if path.exists() { read(&path)? } else { String::new() };
    Users::parse(&text).with_context(|| format!("{shown} has an error; correct it first"))?;
    let has_password =
        lines_of(&text).iter().any(|(_, l)| l.is_password() && l.name() == args.name);
    ensure!(
        args.token || !has_password,
        "{} has a password already: remove it first with tsdb user remove {} --password",
        args.name,
        args.name
    );
    let (line, token) = new_line(args, line)?;
    // Opened after the password was typed, since an open file is locked.
    let open = || UsersFile::open(&path, true);
    let file = open().with_context(|| format!("cannot open {shown}"))?;
    let changed = changed(&file.text, &line).with_context(|| format!("{shown} is unchanged"))?;
    file.replace(&changed)?;
    let kind = if args.token { "token" } else { "password" };
    tell!("tsdb: added a {kind} of {} to {shown}", args.name);
    if let Some(token) = token {
        tell!("tsdb: the token follows and is not shown again");
        print_lines(&format!("{token}\n"))?;
    }
    Ok(())
}

/// Makes the line of a new credential, and the token if it is one.
fn new_line(
    args: &UserAddArgs,
    line: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<(String, Option<String>)> {
    if args.token {
        let token = new_token()?;
        return Ok((line(&hash_token(&token))?, Some(token)));
    }
    let password = read_new_password(&args.name)?;
    Ok((line(&hash_password(password.as_bytes())?)?, None))
}

fn read_new_password(name: &str) -> anyhow::Result<String> {
    let read = |question: &str| password::read(question).context("cannot read the password");
    let password = read(&format!("Password of {name}: "))?;
    if password::is_interactive() {
        ensure!(read("The same again: ")? == password, "the passwords differ");
    }
    Ok(password)
}

/// Parses the argument of `--expires`, which must be later than `now`.
fn expiry(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let at = match Duration::parse_exact(text) {
        Ok(duration) => now.checked_add(SignedDuration::from_millis(duration.millis))?,
        Err(_) => parse_expiry(text).map_err(|_| {
            anyhow!("--expires {text}: expected a duration such as 90d, a date such as 2027-03-01, or a time such as 2027-03-01T00:00:00Z")
        })?,
    };
    ensure!(at > now, "--expires {text}: {} has passed", utc(at));
    Ok(Timestamp::from_second(at.as_second())?)
}

/// The line of a user, checked as a daemon reads it.
fn line(
    name: &str,
    hash: &str,
    roles: &str,
    (expires, metrics): (Option<Timestamp>, Option<&str>),
) -> anyhow::Result<String> {
    check_word("NAME", name)?;
    ensure!(!name.starts_with('#'), "NAME {name:?}: the name of a user does not begin with #");
    let fields = expires.map(|at| format!(" expires={at}")).unwrap_or_default();
    let user = |name: &str, roles: &str| format!("{name} {hash} {roles}{fields}\n");
    let parsed = |argument: &str, line: String| match Users::parse(&line) {
        Ok(_) => Ok(line),
        // Omits the line number, which would refer to a file.
        Err(error) => Err(anyhow!("{argument}: {}", error.what())),
    };
    parsed(&format!("NAME {name:?}"), user(name, "GUEST"))?;
    check_word("ROLES", roles)?;
    let line = parsed(&format!("ROLES {roles:?}"), user(name, roles))?;
    let Some(metrics) = metrics else { return Ok(line) };
    check_word("--metrics", metrics)?;
    parsed("--metrics", format!("{} metrics={metrics}\n", line.trim_end()))
}

/// Fails if an argument is not one word of a line.
fn check_word(argument: &str, text: &str) -> anyhow::Result<()> {
    ensure!(!text.is_empty(), "{argument} is empty");
    let separated = if argument == "ROLES" { ": separate roles by commas only" } else { "" };
    ensure!(!text.contains(char::is_whitespace), "{argument} {text:?} has white space{separated}");
    Ok(())
}

fn remove(args: &UserRemoveArgs) -> anyhow::Result<()> {
    let path = location(&args.location)?;
    let shown = path.display();
    let file = UsersFile::open(&path, false).with_context(|| format!("cannot open {shown}"))?;
    let is_removed = |line: &UserLine| {
        line.name() == args.name
            && match &args.id {
                Some(id) => line.id() == *id,
                None => {
                    (!args.tokens || !line.is_password()) && (!args.password || line.is_password())
                }
            }
    };
    let (kept, removed) = without(&file.text, is_removed);
    if removed.is_empty() {
        bail!("{shown} has no such credential of {}; tsdb user list shows all", args.name);
    }
    file.replace(&kept)?;
    for line in removed {
        tell!("tsdb: removed the {} of {} with the id {}", line.kind(), line.name(), line.id());
    }
    Ok(())
}

/// A file without some of its users: its text, and the removed lines.
fn without(text: &str, is_removed: impl Fn(&UserLine) -> bool) -> (String, Vec<UserLine>) {
    let mut removed = Vec::new();
    let mut is_kept = |line: &str| {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let Some(Ok(line)) = UserLine::parse(line) else { return true };
        let is_kept = !is_removed(&line);
        if !is_kept {
            removed.push(line);
        }
        is_kept
    };
    let kept = text.split_inclusive('\n').filter(|line| is_kept(line)).collect();
    (kept, removed)
}

/// Returns true if the file, or the credential, is valid.
fn check(args: &UserCheckArgs) -> anyhow::Result<bool> {
    let path = location(&args.location)?;
    let (text, now, shown) = (read(&path)?, Timestamp::now(), path.display());
    let errors = Users::errors(&text);
    if !errors.is_empty() {
        let lines: Vec<_> = errors.iter().map(|error| format!("{shown}: {error}\n")).collect();
        print_lines(&lines.concat())?;
        return Ok(false);
    }
    let lines = lines_of(&text);
    let Some(name) = &args.name else {
        let expired = lines.iter().filter(|(_, line)| is_expired(line, now));
        for (number, line) in expired {
            let (kind, of) = (line.kind(), line.name());
            print_lines(&format!("{shown}: line {number}: the {kind} of {of} has expired\n"))?;
        }
        print_lines(&format!("{shown}: {} credentials, no errors\n", lines.len()))?;
        return Ok(true);
    };
    let of_name: Vec<_> = lines.iter().filter(|(_, line)| line.name() == name).collect();
    ensure!(!of_name.is_empty(), "{shown} has no user {name}");
    let secret = password::read(&format!("Password or token of {name}: "))
        .context("cannot read the password or token")?;
    let Some((number, line)) = of_name.iter().find(|(_, line)| line.verify(secret.as_bytes()))
    else {
        print_lines(&format!("{name} has no such password or token\n"))?;
        return Ok(false);
    };
    let expires = match line.expires() {
        Some(_) => format!("expires {}", expiry_of(line, now)),
        None => "does not expire".to_owned(),
    };
    let permissions = match line.permissions() {
        held if held.is_empty() => "no permission".to_owned(),
        held => held.join(", "),
    };
    let metrics = line.metrics().unwrap_or("all");
    let kind = line.kind();
    print_lines(&format!(
        "{name}, {kind} of line {number}: {permissions}; metrics: {metrics}; {expires}\n"
    ))?;
    Ok(!is_expired(line, now))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_is_checked_as_a_daemon_reads_it() {
        let hash = hash_token("t");
        let expected = format!("alice {hash} READER,WRITER\n");
        assert_eq!(line("alice", &hash, "READER,WRITER", (None, None)).unwrap(), expected);
        let march = Some(parse_expiry("2027-03-01").unwrap());
        let expected = format!("alice {hash} READER expires=2027-03-01T00:00:00Z metrics=read:a\n");
        assert_eq!(line("alice", &hash, "READER", (march, Some("read:a"))).unwrap(), expected);
        for (metrics, expected) in
            [("a", "--metrics: \"a\" is not a right"), ("read:a b", "--metrics \"read:a b\" has")]
        {
            let error =
                line("alice", &hash, "READER", (None, Some(metrics))).unwrap_err().to_string();
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
            let error = line(name, &hash, roles, (None, None)).unwrap_err().to_string();
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

    #[test]
    fn a_removal_keeps_comments_and_the_order_of_lines() {
        let (first, second) = (hash_token("1"), hash_token("2"));
        let user = |name: &str, hash: &str| format!("{name} {hash} GUEST # of {name}\r\n");
        let (alice, bob) = (user("alice", &first), user("bob", &second));
        let text =
            format!("\u{feff}# all\n{alice}\n  # of bob\n{bob}broken line\nb {second} GUEST");
        let (kept, removed) = without(&text, |line| line.name() == "alice");
        assert_eq!(kept, text.replace(&alice, ""));
        assert_eq!(removed.len(), 1);
        let (kept, removed) = without(&text, |line| line.name() == "b");
        assert!(kept.ends_with("broken line\n") && removed.len() == 1, "{kept}");
        let (kept, removed) = without(&text, |_| false);
        assert!(kept == text && removed.is_empty());
    }
}
