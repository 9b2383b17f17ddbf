//! OpenTSDB's query engine over columns, without I/O.
