//! Arguments of `tsdb user`.

use clap::{Args, Subcommand};

/// Sub-commands of `tsdb user`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Hash a password from the terminal or standard input
    Hash(UserLineArgs),
    /// Make a token and its hash
    Token(UserLineArgs),
}

/// The fields of a line of the file of users.
#[derive(Debug, Args)]
pub(crate) struct UserLineArgs {
    /// Name of the user; without a name only the hash is printed
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Roles and permissions, separated by commas; GUEST by default
    #[arg(value_name = "ROLES")]
    pub(crate) roles: Option<String>,
}
