//! `tsdb user`: makes lines of the file of users.
//!
//! The command does not change the file: the line goes to standard output, and an editor or `>>` adds it to the file.

use std::io::{self, Write as _};

use anyhow::{Context as _, anyhow, ensure};
use tsd_server::{Users, hash_password, hash_token, new_token};

use crate::{args::UserCommand, password, print_lines};

/// Runs `tsdb user`.
pub(crate) fn run(command: &UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Hash(args) => {
            // Reports wrong arguments before the user types anything.
            line(args.name.as_deref(), &hash_token(""), args.roles.as_deref())?;
            let password = read_password(args.name.as_deref())?;
            let hash = hash_password(password.as_bytes())?;
            print_lines(&line(args.name.as_deref(), &hash, args.roles.as_deref())?)?;
        }
        UserCommand::Token(args) => {
            let token = new_token()?;
            let line = line(args.name.as_deref(), &hash_token(&token), args.roles.as_deref())?;
            // The line is useless without the token.
            writeln!(io::stderr(), "The token, which is not shown again:\n{token}")?;
            print_lines(&line)?;
        }
    }
    Ok(())
}

fn read_password(name: Option<&str>) -> anyhow::Result<String> {
    let name = name.unwrap_or("the user");
    let read = |question: &str| password::read(question).context("cannot read the password");
    let password = read(&format!("Password of {name}: "))?;
    if password::is_interactive() {
        ensure!(read("The same again: ")? == password, "the passwords differ");
    }
    Ok(password)
}

/// The line of a user, checked as a daemon reads it; without a name only the hash.
fn line(name: Option<&str>, hash: &str, roles: Option<&str>) -> anyhow::Result<String> {
    let Some(name) = name else { return Ok(format!("{hash}\n")) };
    check_word("NAME", name)?;
    ensure!(!name.starts_with('#'), "NAME {name:?}: the name of a user does not begin with #");
    let user = |name: &str, roles: &str| format!("{name} {hash} {roles}\n");
    let parsed = |argument: &str, line: String| match Users::parse(&line) {
        Ok(_) => Ok(line),
        // Omits the line number, which would refer to a file.
        Err(error) => Err(anyhow!("{argument}: {}", error.what())),
    };
    parsed(&format!("NAME {name:?}"), user(name, "GUEST"))?;
    let roles = roles.unwrap_or("GUEST");
    check_word("ROLES", roles)?;
    parsed(&format!("ROLES {roles:?}"), user(name, roles))
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

    use super::*;

    #[test]
    fn a_line_is_checked_as_a_daemon_reads_it() {
        let hash = hash_token("t");
        assert_eq!(line(None, &hash, None).unwrap(), format!("{hash}\n"));
        let expected = format!("alice {hash} READER,WRITER\n");
        assert_eq!(line(Some("alice"), &hash, Some("READER,WRITER")).unwrap(), expected);
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
            let error = line(Some(name), &hash, Some(roles)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{name:?} {roles:?}: {error}");
        }
    }
}
