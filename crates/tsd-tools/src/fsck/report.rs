//! Counters of a check of the data table, with OpenTSDB's labels.

/// Counters of the findings and repairs of a check of the data table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Cells of rows with a valid key.
    pub cells: u64,
    /// Rows. As in OpenTSDB, the last row of a range counts only if it has points.
    pub rows: u64,
    /// Instants that have a point.
    pub valid_points: u64,
    /// Annotations.
    pub annotations: u64,
    /// Rows with an invalid key.
    pub bad_keys: u64,
    /// Rows with an invalid key that were deleted.
    pub bad_keys_deleted: u64,
    /// Points of an instant, beyond the first.
    pub duplicates: u64,
    /// Such points that were removed.
    pub duplicates_resolved: u64,
    /// Rows with a UID that has no name.
    pub orphans: u64,
    /// Orphaned rows that were deleted.
    pub orphans_deleted: u64,
    /// Columns that a later version may have written.
    pub future_objects: u64,
    /// Columns that no version writes.
    pub unknown_columns: u64,
    /// Unknown columns that were deleted.
    pub unknown_columns_deleted: u64,
    /// Points whose value cannot be read.
    pub bad_values: u64,
    /// Unreadable points that were deleted.
    pub bad_values_deleted: u64,
    /// Single-precision values on eight bytes.
    pub encodings: u64,
    /// Such values that were rewritten on four bytes.
    pub encodings_fixed: u64,
    /// Compacted columns that cannot be split.
    pub bad_columns: u64,
    /// Such columns that were deleted.
    pub bad_columns_deleted: u64,
    /// Compacted columns whose points are not in order.
    pub disordered_columns: u64,
    /// Integers on eight bytes that fit fewer.
    pub long_integers: u64,
    /// Such integers that were shortened.
    pub long_integers_shortened: u64,
    /// Bytes saved by shortening.
    pub bytes_saved: u64,
}

impl FsckReport {
    /// Number of errors.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.bad_keys
            + self.duplicates
            + self.orphans
            + self.unknown_columns
            + self.bad_values
            + self.bad_columns
            + self.disordered_columns
            + self.encodings
    }

    /// Number of repaired errors. As in OpenTSDB, it excludes compacted columns that were deleted or put in order.
    #[must_use]
    pub const fn errors_fixed(&self) -> u64 {
        self.bad_keys_deleted
            + self.duplicates_resolved
            + self.orphans_deleted
            + self.unknown_columns_deleted
            + self.bad_values_deleted
            + self.encodings_fixed
    }

    /// All counters with OpenTSDB's labels, in its order.
    #[must_use]
    pub fn lines(&self) -> [(&'static str, u64); 25] {
        let errors = self.errors();
        [
            ("Key Values Processed", self.cells),
            ("Rows Processed", self.rows),
            ("Valid Datapoints", self.valid_points),
            ("Annotations", self.annotations),
            ("Invalid Row Keys Found", self.bad_keys),
            ("Invalid Rows Deleted", self.bad_keys_deleted),
            ("Duplicate Datapoints", self.duplicates),
            ("Duplicate Datapoints Resolved", self.duplicates_resolved),
            ("Orphaned UID Rows", self.orphans),
            ("Orphaned UID Rows Deleted", self.orphans_deleted),
            ("Possible Future Objects", self.future_objects),
            ("Unknown Objects", self.unknown_columns),
            ("Unknown Objects Deleted", self.unknown_columns_deleted),
            ("Unparseable Datapoint Values", self.bad_values),
            ("Unparseable Datapoint Values Deleted", self.bad_values_deleted),
            ("Improperly Encoded Floating Point Values", self.encodings),
            ("Improperly Encoded Floating Point Values Fixed", self.encodings_fixed),
            ("Unparseable Compacted Columns", self.bad_columns),
            ("Unparseable Compacted Columns Deleted", self.bad_columns_deleted),
            ("Datapoints Qualified for VLE ", self.long_integers),
            ("Datapoints Compressed with VLE", self.long_integers_shortened),
            ("Bytes Saved with VLE", self.bytes_saved),
            ("Total Errors", errors),
            ("Total Correctable Errors", errors),
            ("Total Errors Fixed", self.errors_fixed()),
        ]
    }

    /// Adds the counters of another part of the table.
    pub const fn add(&mut self, other: &Self) {
        self.cells += other.cells;
        self.rows += other.rows;
        self.valid_points += other.valid_points;
        self.annotations += other.annotations;
        self.bad_keys += other.bad_keys;
        self.bad_keys_deleted += other.bad_keys_deleted;
        self.duplicates += other.duplicates;
        self.duplicates_resolved += other.duplicates_resolved;
        self.orphans += other.orphans;
        self.orphans_deleted += other.orphans_deleted;
        self.future_objects += other.future_objects;
        self.unknown_columns += other.unknown_columns;
        self.unknown_columns_deleted += other.unknown_columns_deleted;
        self.bad_values += other.bad_values;
        self.bad_values_deleted += other.bad_values_deleted;
        self.encodings += other.encodings;
        self.encodings_fixed += other.encodings_fixed;
        self.bad_columns += other.bad_columns;
        self.bad_columns_deleted += other.bad_columns_deleted;
        self.disordered_columns += other.disordered_columns;
        self.long_integers += other.long_integers;
        self.long_integers_shortened += other.long_integers_shortened;
        self.bytes_saved += other.bytes_saved;
    }
}
