//! Starts the authentication of a daemon: opens and follows the file of users, and the keys of signed tokens.

use std::sync::Arc;

use serde_json::json;
use tsd_engine::EngineConfig;
use tsd_server::{
    AllowAll, AuditLog, AuthenticationConfig, Authenticator, KeySet, UserFileAuthenticator, Users,
    UsersChange,
};

use crate::{
    config::{AuthenticationMethod, AuthenticationSettings, Config, TOKEN_KEYS_FILE, USERS_FILE},
    followed_file::{FileFollower, FollowedFile},
};

/// Name of the key set, for the log, the health and the metric.
const TOKEN_KEYS: &str = "keys of tokens";

/// The authenticator, and the tasks that follow its files.
pub(crate) struct StartedAuthentication {
    pub(crate) config: AuthenticationConfig,
    pub(crate) followers: Vec<FileFollower>,
}

/// Opens the files of users and of keys, and follows them.
pub(crate) fn start(
    config: &Config,
    settings: &AuthenticationSettings,
    engine: &EngineConfig,
    audit: Option<Arc<AuditLog>>,
) -> anyhow::Result<StartedAuthentication> {
    let mut followers = Vec::new();
    let authenticator: Arc<dyn Authenticator> = match &settings.method {
        AuthenticationMethod::AllowAll => Arc::new(AllowAll),
        AuthenticationMethod::UsersFile(path, tokens) => {
            let opened = FollowedFile::open(path, "users", Users::parse);
            let (file, users) = opened.map_err(|error| config.bad_value(USERS_FILE, error))?;
            if users.is_empty() {
                tracing::warn!(file = %path.display(), "the file has no users, so nobody can log in");
            }
            let (memory, clock) = (engine.memory.clone(), Arc::clone(&engine.clock));
            let mut authenticator = UserFileAuthenticator::new(users, memory, clock)?;
            let mut keys_file = None;
            if let Some(tokens) = tokens {
                let opened = FollowedFile::open(&tokens.keys_file, TOKEN_KEYS, KeySet::parse);
                let (file, keys) =
                    opened.map_err(|error| config.bad_value(TOKEN_KEYS_FILE, error))?;
                authenticator = authenticator.with_tokens(tokens.rules.clone(), keys);
                keys_file = Some(file);
            }
            let authenticator = Arc::new(authenticator);
            let problems = &engine.file_problems;
            followers.extend(keys_file.map(|file| {
                let (target, audit) = (Arc::clone(&authenticator), audit.clone());
                file.follow(problems.clone(), KeySet::parse, move |keys| {
                    let details = json!({"keys": keys.len()});
                    target.replace_keys(keys);
                    if let Some(audit) = &audit {
                        audit.record("token keys replaced", details);
                    }
                })
            }));
            let target = Arc::clone(&authenticator);
            let apply = move |users| {
                let change = target.replace(users);
                if let Some(audit) = &audit {
                    record(audit, &change);
                }
            };
            followers.push(file.follow(problems.clone(), Users::parse, apply));
            authenticator
        }
    };
    let AuthenticationSettings { open_paths, per_connection, .. } = settings.clone();
    let config = AuthenticationConfig { authenticator, open_paths, per_connection };
    Ok(StartedAuthentication { config, followers })
}

/// Records in the audit log which users a new version of the file changes.
fn record(audit: &AuditLog, change: &UsersChange) {
    let UsersChange { added, removed, changed, users } = change;
    let details = json!({"users": users, "added": added, "removed": removed, "changed": changed});
    audit.record("users replaced", details);
}
