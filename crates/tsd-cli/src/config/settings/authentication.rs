//! Settings of authentication. Only a daemon opens the file of users, because a tool may not be allowed to read it.

use std::path::PathBuf;

use tsd_server::{OpenPaths, TokenRules};

use crate::config::{Config, ConfigError, plugins};

/// Key of the file of users.
pub(crate) const USERS_FILE: &str = "tsd.core.authentication.users_file";

/// Key of the file with the keys of signed tokens.
pub(crate) const TOKEN_KEYS_FILE: &str = "tsd.core.authentication.jwt.keys_file";
const ISSUER: &str = "tsd.core.authentication.jwt.issuer";
const AUDIENCE: &str = "tsd.core.authentication.jwt.audience";
const USER_CLAIM: &str = "tsd.core.authentication.jwt.user_claim";
const ROLES_CLAIM: &str = "tsd.core.authentication.jwt.roles_claim";

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
    /// Accepts the users of this file, and signed tokens if they are configured.
    UsersFile(PathBuf, Option<TokenSettings>),
}

/// How signed tokens of an identity provider are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// The file with the public keys.
    pub keys_file: PathBuf,
    /// What tokens must claim.
    pub rules: TokenRules,
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
        AuthenticationMethod::UsersFile(file.into(), tokens(config)?)
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

/// Settings of signed tokens; `None` without a file of keys.
fn tokens(config: &Config) -> Result<Option<TokenSettings>, ConfigError> {
    let Some(keys_file) = config.non_empty(TOKEN_KEYS_FILE) else {
        return match [ISSUER, AUDIENCE].into_iter().find(|key| config.non_empty(key).is_some()) {
            Some(key) => {
                Err(config.bad_value(key, format!("expected also {TOKEN_KEYS_FILE} = FILE")))
            }
            None => Ok(None),
        };
    };
    let rules = TokenRules {
        issuer: config
            .required(ISSUER, "expected the issuer of the tokens, as in their claim iss")?,
        audience: config
            .required(AUDIENCE, "expected the audience of the tokens, as in their claim aud")?,
        user_claim: config.required(USER_CLAIM, "expected the name of a claim")?,
        roles_claim: config.required(ROLES_CLAIM, "expected the name of a claim")?,
    };
    Ok(Some(TokenSettings { keys_file: keys_file.into(), rules }))
}
