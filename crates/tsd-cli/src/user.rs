//! `tsdb user`: makes lines of the file of users.
//!
//! Changes no file: the line goes to standard output, and an editor or `>>` puts it into the file.

use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use tsd_server::{Users, hash_password, hash_token, new_token};

use crate::{args::UserCommand, password, print_lines};

/// Runs `tsdb user`.
pub(crate) fn run(command: &UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Hash(args) => {
            let password = read_password(args.name.as_deref())?;
            let hash = hash_password(password.as_bytes())?;
            print_lines(&line(args.name.as_deref(), &hash, args.roles.as_deref())?)?;
        }
        UserCommand::Token(args) => {
            let token = new_token()?;
            let line = line(args.name.as_deref(), &hash_token(&token), args.roles.as_deref())?;
            // Without it the line is of no use.
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
    let line = format!("{name} {hash} {}\n", roles.unwrap_or("GUEST"));
    let users = Users::parse(&line)?;
    ensure!(users.len() == 1, "the name of a user does not begin with #");
    Ok(line)
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
        for (name, roles) in [
            ("al ice", "READER"),
            ("a:b", "READER"),
            ("#a", "READER"),
            ("a", "BOSS"),
            ("", "READER"),
        ] {
            assert!(line(Some(name), &hash, Some(roles)).is_err(), "{name:?} {roles}");
        }
    }
}
