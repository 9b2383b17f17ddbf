//! Starts the authentication of a daemon: opens and follows the file of users.

use std::sync::Arc;

use serde_json::json;
use tsd_engine::EngineConfig;
use tsd_server::{
    AllowAll, AuditLog, AuthenticationConfig, Authenticator, UserFileAuthenticator, Users,
    UsersChange,
};

use crate::{
    config::{AuthenticationMethod, AuthenticationSettings, Config, USERS_FILE},
    followed_file::{FileFollower, FollowedFile},
};

/// The authenticator, and the task that follows its file.
pub(crate) struct StartedAuthentication {
    pub(crate) config: AuthenticationConfig,
    pub(crate) follower: Option<FileFollower>,
}

/// Opens the file of users, and follows it.
pub(crate) fn start(
    config: &Config,
    settings: &AuthenticationSettings,
    engine: &EngineConfig,
    audit: Option<Arc<AuditLog>>,
) -> anyhow::Result<StartedAuthentication> {
    let mut follower = None;
    let authenticator: Arc<dyn Authenticator> = match &settings.method {
        AuthenticationMethod::AllowAll => Arc::new(AllowAll),
        AuthenticationMethod::UsersFile(path) => {
            let opened = FollowedFile::open(path, "users", Users::parse);
            let (file, users) = opened.map_err(|error| config.bad_value(USERS_FILE, error))?;
            if users.is_empty() {
                tracing::warn!(file = %path.display(), "the file has no users, so nobody can log in");
            }
            let (memory, clock) = (engine.memory.clone(), Arc::clone(&engine.clock));
            let authenticator = Arc::new(UserFileAuthenticator::new(users, memory, clock)?);
            let target = Arc::clone(&authenticator);
            let apply = move |users| {
                let change = target.replace(users);
                if let Some(audit) = &audit {
                    record(audit, &change);
                }
            };
            follower = Some(file.follow(engine.file_problems.clone(), Users::parse, apply));
            authenticator
        }
    };
    let AuthenticationSettings { open_paths, per_connection, .. } = settings.clone();
    let config = AuthenticationConfig { authenticator, open_paths, per_connection };
    Ok(StartedAuthentication { config, follower })
}

/// Records in the audit log which users a new version of the file changes.
fn record(audit: &AuditLog, change: &UsersChange) {
    let UsersChange { added, removed, changed, users } = change;
    let details = json!({"users": users, "added": added, "removed": removed, "changed": changed});
    audit.record("users replaced", details);
}
