//! Write-ahead log and memtable of rows in front of any backend.
