//! Encodes the values of query strings.

/// Encodes a value of a query string.
pub(crate) fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_string_are_encoded() {
        assert_eq!(percent_encoded("^a.b[0-9]+ ä&"), "%5Ea.b%5B0-9%5D%2B%20%C3%A4%26");
    }
}
