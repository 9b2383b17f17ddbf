//! Short words for the cases.
