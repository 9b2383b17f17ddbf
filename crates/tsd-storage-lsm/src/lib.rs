//! Storage backend: runs of row cells in a log-structured merge tree.
