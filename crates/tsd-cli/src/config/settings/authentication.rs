//! Settings of authentication. Only a daemon opens the file of users, because a tool may not be allowed to read it.

use std::path::PathBuf;

use tsd_server::OpenPaths;

use crate::config::{Config, ConfigError, plugins};

/// Key of the file of users.
pub(crate) const USERS_FILE: &str = "tsd.core.authentication.users_file";

/// How clients are authenticated.
#[derive(Clone, Debug)]
pub struct AuthenticationSettings {
    /// The method.
    pub method: AuthenticationMethod,
    /// Paths that HTTP serves without credentials.
    pub open_paths: OpenPaths,
    /// True if an HTTP request inherits the identity of the one before it on its connection.
    pub per_connection: bool,
}

/// What authenticates clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    /// Accepts everybody.
    AllowAll,
    /// Accepts the users of this file.
    UsersFile(PathBuf),
}

/// Settings of authentication; `None` if it is off.
pub(super) fn authentication(
    config: &Config,
) -> Result<Option<AuthenticationSettings>, ConfigError> {
    const OPEN_PATHS: &str = "tsd.core.authentication.open_paths";
    let Some(name) = plugins::selected(config, "tsd.core.authentication.plugin") else {
        return Ok(None);
    };
    let method = if name == "allow_all" {
        AuthenticationMethod::AllowAll
    } else {
        let file = config.required(USERS_FILE, "expected the path of a file")?;
        AuthenticationMethod::UsersFile(file.into())
    };
    let open_paths = OpenPaths::try_new(&config.string(OPEN_PATHS))
        .map_err(|error| config.bad_value(OPEN_PATHS, error))?;
    let scope = config.text("tsd.core.authentication.http_scope");
    Ok(Some(AuthenticationSettings {
        method,
        open_paths,
        per_connection: scope == Some("connection"),
    }))
}
