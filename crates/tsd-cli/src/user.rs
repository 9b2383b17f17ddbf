//! `tsdb user`: lists, adds, removes and checks the credentials in the file of users.
//!
//! The command works on the file, since only its owner decides who is a user. A daemon follows the file.

mod limits;
mod new_line;
mod users_file;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tsd_server::{UserLine, Users, hash_password, hash_token, new_token};

use self::{
    limits::with_limits,
    new_line::{Fields, expiry, line},
    users_file::UsersFile,
};
use crate::{
    args::{
        Overrides, UserAddArgs, UserCheckArgs, UserCommand, UserFileArgs, UserListArgs,
        UserRemoveArgs, UserSetArgs,
    },
    columns::table,
    config::USERS_FILE,
    followed_file,
    output::{print_result, tell, utc},
    password, print_lines,
    tool::{checked, failed},
};

/// Titles of the columns of `tsdb user list`.
const TITLES: [&str; 7] = ["NAME", "KIND", "ID", "ROLES", "METRICS", "LIMITS", "EXPIRES"];

/// Runs `tsdb user`.
pub(crate) fn main(command: &UserCommand) -> ExitCode {
    let done = match command {
        UserCommand::List(args) => list(args),
        UserCommand::Add(args) => add(args),
        UserCommand::Set(args) => set(args),
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
            "limits": limits_object(line),
            "expires": line.expires().map(|at| at.to_string()),
            "expired": is_expired(line, now),
        })
    };
    print_result(args.json, &lines.iter().map(object).collect(), || {
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(lines.iter().map(|(_, line)| {
            let (name, kind) = (line.name().to_owned(), line.kind().to_owned());
            let metrics = line.metrics().unwrap_or("all").to_owned();
            let (roles, limits) = (line.roles().to_owned(), line.limits().join(" "));
            [name, kind, line.id(), roles, metrics, limits, expiry_of(line, now)]
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

/// The limits of a line by field, as written.
fn limits_object(line: &UserLine) -> Map<String, Value> {
    let fields = line.limits().iter().filter_map(|limit| limit.split_once('='));
    fields.map(|(field, value)| (field.to_owned(), value.into())).collect()
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
    let fields = Fields { expires, metrics: args.metrics.as_deref(), limits: args.limits.fields() };
    let line = |hash: &str| line(&args.name, hash, &args.roles, &fields);
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

/// Changes the limits of a user.
fn set(args: &UserSetArgs) -> anyhow::Result<()> {
    let limits = args.limits.fields();
    ensure!(!limits.is_empty(), "nothing to change: give a limit, such as --points 50k/s");
    let path = location(&args.location)?;
    let shown = path.display();
    let file = UsersFile::open(&path, false).with_context(|| format!("cannot open {shown}"))?;
    Users::parse(&file.text).with_context(|| format!("{shown} has an error; correct it first"))?;
    let is_changed = |line: &UserLine| {
        line.name() == args.name && args.id.as_ref().is_none_or(|id| line.id() == *id)
    };
    let (text, changed) = with_limits(&file.text, is_changed, &limits)?;
    if changed.is_empty() {
        bail!("{shown} has no such credential of {}; tsdb user list shows all", args.name);
    }
    Users::parse(&text).with_context(|| format!("{shown} is unchanged"))?;
    file.replace(&text)?;
    for line in changed {
        tell!("tsdb: changed the {} of {} with the id {}", line.kind(), line.name(), line.id());
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
    let limits = match line.limits() {
        [] => "the configured ones".to_owned(),
        limits => limits.join(" "),
    };
    let kind = line.kind();
    print_lines(&format!(
        "{name}, {kind} of line {number}: {permissions}; metrics: {metrics}; limits: {limits}; {expires}\n"
    ))?;
    Ok(!is_expired(line, now))
}

#[cfg(test)]
mod tests {
    use super::*;

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
