//! The actors: write, UID assignment, row compaction, query.
