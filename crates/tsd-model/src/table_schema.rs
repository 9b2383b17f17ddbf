//! UID widths and salting of the tables, validated once.
//!
//! The schema is an immutable value that is passed by reference, so that no decoder depends on an
//! order of initialisation as in OpenTSDB.

/// Widths of UIDs and the salting of row keys. Immutable after [`TableSchema::try_new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableSchema {
    metric_width: u8,
    tagk_width: u8,
    tagv_width: u8,
    salt_width: u8,
    salt_buckets: u32,
}

/// Values that the table format does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A UID width outside 1 to 8 bytes.
    #[error("the {kind} UID width must be 1 to 8 bytes, not {width}")]
    UidWidth {
        /// `metric`, `tagk` or `tagv`.
        kind: &'static str,
        /// The given width.
        width: usize,
    },
    /// A salt width above 8 bytes.
    #[error("the salt width must be 0 to 8 bytes, not {0}")]
    SaltWidth(usize),
    /// No bucket.
    #[error("there must be at least one salt bucket")]
    SaltBuckets,
}

impl TableSchema {
    /// Default number of salt buckets.
    pub const DEFAULT_SALT_BUCKETS: u32 = 20;

    /// Validates the values. Widths are in bytes; `salt_width` 0 means unsalted keys.
    ///
    /// `salt_buckets` must be at least 1 even without salting, since the same hash then
    /// selects the write shard.
    pub const fn try_new(
        metric_width: usize,
        tagk_width: usize,
        tagv_width: usize,
        salt_width: usize,
        salt_buckets: u32,
    ) -> Result<Self, SchemaError> {
        if metric_width == 0 || metric_width > 8 {
            return Err(SchemaError::UidWidth { kind: "metric", width: metric_width });
        }
        if tagk_width == 0 || tagk_width > 8 {
            return Err(SchemaError::UidWidth { kind: "tagk", width: tagk_width });
        }
        if tagv_width == 0 || tagv_width > 8 {
            return Err(SchemaError::UidWidth { kind: "tagv", width: tagv_width });
        }
        if salt_width > 8 {
            return Err(SchemaError::SaltWidth(salt_width));
        }
        if salt_buckets == 0 {
            return Err(SchemaError::SaltBuckets);
        }
        Ok(Self {
            metric_width: metric_width as u8,
            tagk_width: tagk_width as u8,
            tagv_width: tagv_width as u8,
            salt_width: salt_width as u8,
            salt_buckets,
        })
    }

    /// Three-byte UIDs and unsalted keys, OpenTSDB's defaults.
    #[must_use]
    pub const fn opentsdb_default() -> Self {
        Self {
            metric_width: 3,
            tagk_width: 3,
            tagv_width: 3,
            salt_width: 0,
            salt_buckets: Self::DEFAULT_SALT_BUCKETS,
        }
    }

    /// Bytes of a metric UID.
    #[must_use]
    pub const fn metric_width(&self) -> usize {
        self.metric_width as usize
    }

    /// Bytes of a tag key UID.
    #[must_use]
    pub const fn tagk_width(&self) -> usize {
        self.tagk_width as usize
    }

    /// Bytes of a tag value UID.
    #[must_use]
    pub const fn tagv_width(&self) -> usize {
        self.tagv_width as usize
    }

    /// Bytes of the salt in front of a row key; 0 without salting.
    #[must_use]
    pub const fn salt_width(&self) -> usize {
        self.salt_width as usize
    }

    /// Number of salt buckets; also the number of write actors.
    #[must_use]
    pub const fn salt_buckets(&self) -> u32 {
        self.salt_buckets
    }

    /// Bytes before the base time: salt and metric UID.
    #[must_use]
    pub const fn base_time_start(&self) -> usize {
        self.salt_width() + self.metric_width()
    }

    /// Bytes before the first tag pair: salt, metric UID and base time.
    #[must_use]
    pub const fn tags_start(&self) -> usize {
        self.base_time_start() + 4
    }

    /// Bytes of one tag pair.
    #[must_use]
    pub const fn tag_pair_width(&self) -> usize {
        self.tagk_width() + self.tagv_width()
    }
}
