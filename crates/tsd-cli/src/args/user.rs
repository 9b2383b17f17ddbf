//! Arguments of `tsdb user`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::overrides::Overrides;

/// Sub-commands of `tsdb user`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List the credentials: name, kind, id, roles, metrics, limits, expiry
    List(UserListArgs),
    /// Add a password, or with --token a new token, which is printed
    Add(UserAddArgs),
    /// Change the limits of a user
    Set(UserSetArgs),
    /// Remove the credentials of a user
    Remove(UserRemoveArgs),
    /// Find errors in the file, or show what a credential permits
    Check(UserCheckArgs),
}

/// The file of users.
#[derive(Debug, Args)]
pub(crate) struct UserFileArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// File of users [tsd.core.authentication.users_file]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Arguments of `tsdb user list`.
#[derive(Debug, Args)]
pub(crate) struct UserListArgs {
    #[command(flatten)]
    pub(crate) location: UserFileArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb user add`.
#[derive(Debug, Args)]
pub(crate) struct UserAddArgs {
    /// File of users; `-` prints the line instead [tsd.core.authentication.users_file]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Make a token instead of asking for a password
    #[arg(long)]
    pub(crate) token: bool,
    /// When the credential expires: 90d from now, 2027-03-01, or 2027-03-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
    /// Metrics for which the roles count: read:PATTERN, write:PATTERN, delete:PATTERN, separated by |
    #[arg(long, value_name = "RIGHTS")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) limits: UserLimitArgs,
    /// Name of the user
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Roles and permissions, separated by commas
    #[arg(value_name = "ROLES", default_value = "GUEST")]
    pub(crate) roles: String,
}

/// Arguments of `tsdb user set`.
#[derive(Debug, Args)]
pub(crate) struct UserSetArgs {
    #[command(flatten)]
    pub(crate) location: UserFileArgs,
    /// Change only the credential with this id, as listed
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) limits: UserLimitArgs,
    /// Name of the user
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Limits of a credential. `tsdb user set` also takes the word default.
#[derive(Debug, Args)]
pub(crate) struct UserLimitArgs {
    /// Points a second, such as 50k/s; off for no limit [tsd.limits.points_per_second]
    #[arg(long, value_name = "RATE")]
    points: Option<String>,
    /// New series an hour, such as 1000/h; off for no limit [tsd.limits.new_series_per_hour]
    #[arg(long, value_name = "RATE")]
    series: Option<String>,
    /// Concurrent queries; off for no limit [tsd.limits.concurrent_queries]
    #[arg(long, value_name = "NUMBER")]
    queries: Option<String>,
    /// Bytes that a query reads, such as 1GiB; off for no limit [tsd.limits.query_bytes]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// Memory of a query, such as 256MiB; off for no limit [tsd.limits.query_memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
}

impl UserLimitArgs {
    /// Names and values of the given limits, as the file of users has them.
    pub(crate) fn fields(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("points", &self.points),
            ("series", &self.series),
            ("queries", &self.queries),
            ("bytes", &self.bytes),
            ("memory", &self.memory),
        ];
        fields.into_iter().filter_map(|(field, value)| Some((field, value.as_deref()?))).collect()
    }
}

/// Arguments of `tsdb user remove`.
#[derive(Debug, Args)]
pub(crate) struct UserRemoveArgs {
    #[command(flatten)]
    pub(crate) location: UserFileArgs,
    /// Remove only the tokens of the user
    #[arg(long, conflicts_with_all = ["password", "id"])]
    pub(crate) tokens: bool,
    /// Remove only the password of the user
    #[arg(long, conflicts_with = "id")]
    pub(crate) password: bool,
    /// Remove only the credential with this id, as listed
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Name of the user
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Arguments of `tsdb user check`.
#[derive(Debug, Args)]
pub(crate) struct UserCheckArgs {
    #[command(flatten)]
    pub(crate) location: UserFileArgs,
    /// Name of a user, whose password or token comes from the terminal or standard input
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
