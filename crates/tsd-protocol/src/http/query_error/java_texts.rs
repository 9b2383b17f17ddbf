//! Messages of Java that OpenTSDB passes on; its own are where their errors are.

/// OpenTSDB's text where it uses something absent.
pub(super) const NULL_POINTER: &str = "An internal null pointer exception was thrown";

/// Java's message for a text that is not a number.
pub(super) fn not_a_number(text: &str) -> String {
    if text.is_empty() {
        return "empty String".to_owned();
    }
    format!("For input string: \"{text}\"")
}
