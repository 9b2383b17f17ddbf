//! Numbers by chance: nonces that never repeat, pauses that differ.

/// Any number. Where the system has none to give, the clock's last digits serve.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    })
}

/// A number for a change that must not happen twice; 0 would mean none.
pub(crate) fn nonce() -> u64 {
    random().max(1)
}
