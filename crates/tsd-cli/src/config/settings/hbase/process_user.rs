//! The user of this process.

/// Environment variables that name the user, like the JVM's `user.name`.
const USER_VARIABLES: [&str; 2] = ["USER", "LOGNAME"];

/// The user of the process, by its environment.
pub(super) fn process_user() -> Option<String> {
    USER_VARIABLES.iter().find_map(|name| std::env::var(name).ok().filter(|n| !n.is_empty()))
}
