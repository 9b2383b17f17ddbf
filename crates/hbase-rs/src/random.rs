//! Random numbers: nonces and backoff jitter.

/// Returns a random number, or the clock's nanoseconds if the system's generator fails.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    })
}

/// Returns a nonce. Never 0, which the protocol reads as "no nonce".
pub(crate) fn nonce() -> u64 {
    random().max(1)
}
